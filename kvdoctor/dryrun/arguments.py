"""vLLM's arguments, read by vLLM's own parser."""

import argparse
import functools
from typing import Any, NoReturn

from kvdoctor.dryrun import compat
from kvdoctor.errors import BadRequest
from kvdoctor.launches.request import LaunchRequest
from kvdoctor.secrets import is_secret


def read_arguments(request: LaunchRequest, model: str) -> argparse.Namespace:
    """Read the request as the parser of ``vllm serve`` (or that of ``LLM()``'s arguments, for ``--usage llm``) does.

    Raises:
        BadRequest: with the parser's own complaint, or because something is given twice: the model, or what kvdoctor has an option for.
    """
    parser = _parser(request.usage)
    arguments = parser.parse_args(["--model", model, *request.all_args])
    for name in request.left_out:
        setattr(arguments, name, parser.get_default(name))
    _refuse_second_model(model, arguments.model)
    _refuse_second_model(None, getattr(arguments, "model_tag", None))
    if request.model_position is not None and request.usage == "serve":
        _check_late_model(parser, request)
    _refuse_what_is_given_twice(request)
    if request.model is not None and request.model.revision is not None:
        arguments.revision = request.model.revision
    if request.trust_remote_code:
        arguments.trust_remote_code = True
    return arguments


def _refuse_what_is_given_twice(request: LaunchRequest) -> None:
    given = _given(request.usage, request.vllm_args)
    if request.kv_cache_memory_bytes is not None and "kv_cache_memory_bytes" in given:
        raise BadRequest(
            "the KV-cache budget is given twice: --kv-cache-memory and vLLM's --kv-cache-memory-bytes", hint="Give one of them."
        )
    if request.model is not None and request.model.revision is not None and "revision" in given:
        raise BadRequest(f"the revision is given twice: {request.model.text} and vLLM's --revision", hint="Give one of them.")
    twice = sorted(given.keys() & _given(request.usage, request.varied_args).keys())
    if twice:
        raise BadRequest(f"--{twice[0].replace('_', '-')} is varied, and given after -- as well", hint="Leave one of them out.")


def engine_arguments(arguments: argparse.Namespace, usage: str) -> Any:
    """Give vLLM's ``EngineArgs`` as ``vllm serve`` or ``LLM()`` would make them."""
    from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs

    kind = AsyncEngineArgs if usage == "serve" else EngineArgs
    return kind.from_cli_args(arguments)


def _refuse_second_model(given: str | None, found: str | None) -> None:
    if found != given:
        raise BadRequest(f"vLLM's arguments name a second model, {found!r}", hint="Give the model once: before -- or after it.")


def _check_late_model(parser: argparse.ArgumentParser, request: LaunchRequest) -> None:
    """Have vLLM's parser read the line as it was written, to see whether the word taken for the model is one to it."""
    assert request.model is not None  # noqa: S101 - a position is a model's
    word, at = request.model.text, request.model_position
    read = parser.parse_args([*request.vllm_args[:at], word, *request.vllm_args[at:]])
    if getattr(read, "model_tag", None) != word:
        raise BadRequest(
            f"to vLLM {word!r} is no model in the pasted command, but the value of the option before it",
            hint="Put the model right after `vllm serve`.",
        )


# Values that are shown to rules: short ones whose name is not that of a secret and that are no address.
_SHOWN_CHARACTERS = 64


def given_arguments(request: LaunchRequest) -> dict[str, Any]:
    """Which of vLLM's arguments were given, by the parser's own names (a ``--config`` file's included), with simple values.

    A value that is no number, flag or short word is ``None``: that it was given is all that rules need of it.
    """
    given = _given(request.usage, request.all_args)
    return {name: _shown(name, value) for name, value in given.items() if name not in request.left_out}


def _given(usage: str, words: tuple[str, ...]) -> dict[str, Any]:
    """What ``words`` give, by the names of vLLM's parser, without its defaults."""
    return vars(_parser_without_defaults(usage).parse_args(list(words)))


@functools.cache
def _parser_without_defaults(usage: str) -> argparse.ArgumentParser:
    parser = _parser.__wrapped__(usage)
    parser._defaults.clear()
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return parser


def _shown(name: str, value: Any) -> bool | int | float | str | None:
    if isinstance(value, str):
        secret = is_secret(name) or "://" in value or len(value) > _SHOWN_CHARACTERS
        return None if secret else str(value)
    return value if isinstance(value, (bool, int, float)) else None


def prepare() -> None:
    """Make the parsers of ``vllm serve`` ahead of the requests."""
    _parser("serve")
    _parser_without_defaults("serve")


@functools.cache
def _parser(usage: str) -> argparse.ArgumentParser:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]  # vLLM's classes are Any to mypy
        """vLLM's parser, which reports instead of ending the process."""

        def error(self, message: str) -> NoReturn:
            raise BadRequest(
                f"vLLM does not take these arguments: {message}", hint="See `vllm serve --help=all` for what this release takes."
            )

        def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
            raise BadRequest(
                f"vLLM's parser ended ({status}): {(message or 'help was asked for').strip()}",
                hint="Leave out --help and --version: only the arguments of a launch can be checked.",
            )

    parser = Parser(add_json_tip=False)
    if usage == "llm":
        return EngineArgs.add_cli_args(parser)  # type: ignore[no-any-return]
    return compat.serve_parser(parser)  # type: ignore[no-any-return]
