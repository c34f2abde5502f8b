"""Python code that arguments name (worker classes, logits processors, middleware, parser plugins): found, and run only with consent.

vLLM's own classes are imported without asking. Code of others runs with ``--trust-remote-code`` alone.
"""

import argparse
import importlib
import importlib.util
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from kvdoctor.dryrun import compat
from kvdoctor.dryrun.blame import chain
from kvdoctor.dryrun.settled import Settled
from kvdoctor.errors import Unassessed
from kvdoctor.plan import NOT_A_PARSER, NOT_ON_THIS_MACHINE

_NOT_RUN = "code of the launch's own, not run without --trust-remote-code"
_SHORTEST_PLUGIN = 3  # vLLM takes what is no longer for no path


class SaysNo(Exception):
    """vLLM does not take a name; ``error`` is what it raises, which need not be a ``raise`` of its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, kw_only=True)
class NamedClass:
    """A class that a flag names, the module that holds it (empty where the name has no such form), and vLLM's way to load it."""

    flag: str
    name: str
    module: str
    load: Callable[[str], object]

    @property
    def label(self) -> str:
        """The flag as it was given."""
        return f"{self.flag} {self.name}"


def named_by(arguments: argparse.Namespace, config: Any) -> Iterator[NamedClass]:
    """Every class that ``arguments`` name."""
    dotted = [
        *(("--worker-cls", name) for name in [arguments.worker_cls] if name != "auto"),
        *(("--worker-extension-cls", name) for name in [arguments.worker_extension_cls] if name),
        *(("--middleware", name) for name in getattr(arguments, "middleware", None) or ()),
    ]
    for flag, name in dotted:
        yield NamedClass(flag=flag, name=name, module=name.rpartition(".")[0], load=_resolve)
    for name in arguments.logits_processors or ():
        module = name.partition(":")[0] if ":" in name else ""
        yield NamedClass(flag="--logits-processors", name=name, module=module, load=_logits_loader(config))


def check(settled: Settled, named: NamedClass, *, trusted: bool) -> None:
    """Load the class as vLLM does where it is vLLM's own or running it is allowed; else see whether it is there.

    Raises:
        SaysNo: vLLM does not take it.
        Unassessed: its package is not on this machine.
    """
    package = named.module.partition(".")[0]
    if package in ("", "vllm"):
        _as_vllm(named)  # vLLM's own, or a name of a form that vLLM refuses before it imports anything
        return
    if importlib.util.find_spec(package) is None:
        raise Unassessed(
            f"the module {named.module} of {named.flag} is not on this machine",
            hint="Without it vLLM does not start. Install it beside kvdoctor, or leave the flag out to see the plan without it.",
        )
    if not trusted:
        settled.not_checked(named.label, _NOT_RUN if _is_there(named.module) else f"no module {named.module} was found")
        return
    try:
        _as_vllm(named)
    except SaysNo:
        raise
    except Exception as error:  # noqa: BLE001 - somebody's code on a machine without a GPU: what it raises says nothing of the launch
        settled.not_checked(named.label, f"it could not be imported here: {type(error).__name__}: {' '.join(str(error).split())}")


def read_parser_plugins(settled: Settled, given: argparse.Namespace) -> None:
    """Let vLLM import the parser plugins where that is allowed; else take the names of parsers that they may define out of ``given``."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    # vLLM copies --reasoning-parser into this configuration after its check, and looks the parser up when the engine is configured.
    named = getattr(given, "reasoning_parser", None) or given.structured_outputs_config.reasoning_parser
    tools = getattr(given, "tool_parser_plugin", None) or ""
    reasoning = getattr(given, "reasoning_parser_plugin", None) or ""
    read = _run_plugin(settled, given, "--tool-parser-plugin", tools, ToolParserManager.import_tool_parser)
    tool_parser = getattr(given, "tool_call_parser", None)
    if read and tool_parser and not given.enable_auto_tool_choice and tool_parser not in ToolParserManager.list_registered():
        settled.not_checked(f"--tool-call-parser {tool_parser}", NOT_A_PARSER)
    given.enable_auto_tool_choice = given.enable_auto_tool_choice and read
    if not _run_plugin(settled, given, "--reasoning-parser-plugin", reasoning, ReasoningParserManager.import_reasoning_parser):
        named = ""
        settled.unread_reasoning_plugin = True
    given.structured_outputs_config = argparse.Namespace(reasoning_parser=named)


def _run_plugin(settled: Settled, given: argparse.Namespace, flag: str, path: str, run: Callable[[str], object]) -> bool:
    """Whether the parsers that the launch has are known."""
    if len(path) <= _SHORTEST_PLUGIN:
        return True
    there = Path(path).exists()
    if there and given.trust_remote_code:
        run(path)  # logs what fails in it and goes on, in every release
        return True
    settled.not_checked(f"{flag} {path}", _NOT_RUN if there else NOT_ON_THIS_MACHINE)
    return False


def _as_vllm(named: NamedClass) -> None:
    """Load a class as vLLM does, and tell its refusal from a failure inside what is loaded."""
    try:
        named.load(named.name)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        by_vllm = error.__cause__ is None and frames[-1].filename.startswith(str(Path(importlib.import_module("vllm").__path__[0])))
        missing = next((e for e in chain(error) if isinstance(e, ModuleNotFoundError) and e.name), None)
        if missing is not None and named.module.partition(".")[0] == "vllm" and f"{named.module}.".startswith(f"{missing.name}."):
            raise SaysNo(missing) from error
        if by_vllm:
            raise SaysNo(error) from error
        raise


def _is_there(module: str) -> bool:
    """Whether the module can be found; its packages are searched and not imported."""
    parts = module.split(".")
    spec = importlib.util.find_spec(parts[0])
    for length in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(".".join(parts[:length]), spec.submodule_search_locations)
    return spec is not None


def _resolve(name: str) -> None:
    """As vLLM resolves a class by its dotted name."""
    from vllm.utils.import_utils import resolve_obj_by_qualname

    resolve_obj_by_qualname(name)


def _logits_loader(config: Any) -> Callable[[str], object]:
    """As the model runner of this launch loads its logits processors: the V2 runner has a loader of its own since 0.31."""
    old, new = "vllm.v1.sample.logits_processor", "vllm.v1.worker.gpu.sample.logits_processor.loader"
    is_new = compat.uses_v2_runner(config) and _is_there(new)

    def load(name: str) -> None:
        if is_new:
            importlib.import_module(new)._load_v2_logitsprocs_by_fqcns([name])
        else:
            importlib.import_module(old)._load_logitsprocs_by_fqcns([name])

    return load
