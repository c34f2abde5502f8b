"""Code that comes with a launch: a model's repository, classes that flags name. What fails in it is neither vLLM's verdict nor our bug."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from kvdoctor.dryrun.blame import innermost
from kvdoctor.errors import Unassessed
from kvdoctor.launches.request import LaunchRequest

# Where transformers puts the code of a model's repository.
_REPOSITORY = "transformers_modules"
_NAMING_FLAGS = ("-cls", "-plugin", "--logits-processors", "--middleware")
_NOT_OWN = frozenset({"", "__main__", "kvdoctor", "vllm", "torch", "transformers", "pydantic"})


def brings_code(request: LaunchRequest) -> bool:
    """Tell whether code that is neither vLLM's nor ours may run for the launch."""
    words = request.all_args
    # vLLM's parser has not read the words yet: any that may permit it counts.
    permitted = request.trust_remote_code or any(word.replace("_", "-").startswith("--trust") for word in words)
    return permitted or bool(_named_modules(words))


def raise_if_own(error: BaseException, step: str, request: LaunchRequest) -> None:
    """Return unless the launch's own code raised it, by a check or by accident.

    Raises:
        Unassessed: with the place in that code.
    """
    trace = innermost(error)
    if trace is None or not _is_own(trace.tb_frame, _named_modules(request.all_args)):
        return
    said = " ".join(str(error).split())[:600]
    place = f"{'/'.join(Path(trace.tb_frame.f_code.co_filename).parts[-2:])}:{trace.tb_lineno}"
    raise Unassessed(
        f"code that comes with the launch failed at '{step}' ({place}): {type(error).__name__}" + (f": {said}" if said else ""),
        hint="It is neither vLLM's nor kvdoctor's. It may need a GPU, or what else is not here; -v shows the traceback.",
    ) from error


def _is_own(frame: FrameType, named: frozenset[str]) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if package == _REPOSITORY or package in named:
        return True
    file = Path(frame.f_code.co_filename)
    return package not in _NOT_OWN and any(
        file.is_relative_to(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
    )


def _named_modules(arguments: Sequence[str]) -> frozenset[str]:
    return frozenset(_packages(arguments)) - _NOT_OWN


def _packages(arguments: Sequence[str]) -> Iterator[str]:
    naming = False
    for word in arguments:
        flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if flag:
            naming = flag.replace("_", "-").endswith(_NAMING_FLAGS)
        if naming and (equals or not flag):
            # `package.module.Class`, `package.module:Class`, or the path of a plugin's file.
            yield Path(value).stem if value.endswith(".py") else value.partition(".")[0].partition(":")[0]
