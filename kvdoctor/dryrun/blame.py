"""Whose fault an exception is: vLLM's verdict, an accident in its code, a limit of the dry launch, or kvdoctor's own bug.

A verdict needs intent: somebody wrote ``raise`` or ``assert``. An attribute, a key or an argument that is not there is an accident, and
says as much about kvdoctor's stand-ins as about the launch; on a release that nobody tried it says nothing at all.
"""

import dis
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from kvdoctor.dryrun.stand_in import StandInAsked, vllm_version
from kvdoctor.engines.releases import standing
from kvdoctor.errors import BadRequest, Bug, KvdoctorError, Unassessed
from kvdoctor.workers.environment import UNTESTED_VARIABLE

# How torch and CUDA say that there is no device, or that a meta tensor holds no data.
_NO_DEVICE_WORDS = (
    "no nvidia driver",
    "no cuda gpus",
    "cuda driver",
    "no cuda-capable device",
    "cuda error",
    "cannot copy out of meta tensor",
    "meta tensors",
    "on a meta tensor",
    "'meta' backend",
    "data-independent implementation does not exist",
    "cuda initialization",
    "nvml",
)
# How transformers and the hub's client say that a file beside the config is missing.
_MISSING_FILE_WORDS = (
    "can't load image processor",
    "can't load feature extractor",
    "can't load processor",
    "can't load tokenizer",
    "can't load the configuration",
    "couldn't instantiate the backend tokenizer",
    "unable to load vocabulary",
    "can't load video processor",
    # A repository whose code is not beside its config.
    "does not appear to have a file named",
)
# How vLLM and its dependencies say, in an exception of another kind, that a package is missing where they run.
_MISSING_PACKAGE_WORDS = ("no module named", "please install", "pip install", "is not installed", "must be installed")
# How they say that the hub could not be asked.
_NO_HUB_WORDS = (
    "couldn't connect to",
    "cannot find the requested files in the",
    "cannot find an appropriate cached snapshot",
    "outgoing traffic has been disabled",
    "offline mode is enabled",
    "max retries exceeded",
    "name or service not known",
    "temporary failure in name resolution",
    "a dry launch does not reach the network",
)
# vLLM goes on to list every architecture that it knows.
_UNKNOWN_ARCHITECTURE = re.compile(r"Model architectures \[[^]]*\] are not supported for now")
# What vLLM says when looking at a model's class failed by accident; what failed stands in its log only.
_NOT_INSPECTED = "failed to be inspected"
_HERE = str(Path(__file__).parent)
_RAISE = dis.opmap["RAISE_VARARGS"]
# Exceptions that Python raises by itself when code meets an object that it did not expect.
_ACCIDENTAL = (AttributeError, NameError, LookupError, TypeError, ArithmeticError, RecursionError)
# Whose checks speak about a launch: vLLM's, and of those that read its configuration.
_JUDGES = frozenset({"vllm", "transformers", "huggingface_hub", "pydantic", "compressed_tensors", "json", "argparse", "mistral_common"})


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it came from, pydantic's parts among it: it wraps what a validator raises and keeps no cause."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting.extend(part.get("ctx", {}).get("error") for part in _parts(current))
        waiting.append(current.__cause__ or current.__context__)


def _parts(error: BaseException) -> list[dict[str, Any]]:
    """The errors inside one of pydantic's."""
    if not (hasattr(error, "errors") and callable(error.errors)):
        return []
    return [part for part in error.errors() if isinstance(part, dict)]


def innermost(error: BaseException) -> TracebackType | None:
    """Where the exception was raised; ``None`` where it never was."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def is_accident(error: BaseException) -> bool:
    """Whether nobody meant the exception: it was not raised by a check of vLLM's or of those that read its configuration."""
    trace = innermost(error)
    if _parts(error) or trace is None:
        return False
    code = trace.tb_frame.f_code
    if code.co_code[trace.tb_lasti] != _RAISE:
        return True  # raised by the interpreter or by compiled code
    judge = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in _JUDGES
    # ``torch.nn.Module.__getattr__`` and its like raise by hand what Python raises by itself.
    return not judge or (isinstance(error, _ACCIDENTAL) and code.co_name.startswith("__get"))


def tested() -> bool:
    """Whether kvdoctor was tested with the vLLM that answers: a checkout may hold anything, whatever its version says."""
    return UNTESTED_VARIABLE not in os.environ and standing(vllm_version()) == "tested"


def needs_gpu(error: BaseException) -> bool:
    """Whether the exception means that only a real GPU could go on."""
    return any(isinstance(e, StandInAsked) or _has_words(e, _NO_DEVICE_WORDS) for e in chain(error))


def lacks_file(error: BaseException) -> bool:
    """Whether the model needs a file (tokenizer, processor, config) that is not at hand."""
    return any(_has_words(e, (*_MISSING_FILE_WORDS, *_NO_HUB_WORDS)) for e in chain(error))


def raise_if_ours(error: Exception, *, step: str, model: str) -> None:
    """Return when the exception is vLLM's: its verdict on the launch, or an accident in the code of a tested release. Raise ours otherwise.

    Raises:
        BadRequest: the config names a model that this vLLM does not have.
        Unassessed: a real GPU, a missing file or package would be needed, or this vLLM does what kvdoctor does not know.
        Bug: the exception comes from kvdoctor's own code.
    """
    if isinstance(error, KvdoctorError):
        raise error
    unknown = _UNKNOWN_ARCHITECTURE.search(str(error))
    if unknown is not None:
        raise BadRequest(
            f"vLLM does not know this model: {unknown[0]}",
            hint="Check the config's architectures, or ask another release with --vllm.",
        ) from error
    if needs_gpu(error):
        raise Unassessed(
            f"the dry launch could not go on at '{step}': {first_line(error)}",
            hint="This launch needs an answer that only a real GPU has. Please report it with the command line and the model's config.",
        ) from error
    if any(_has_words(e, _NO_HUB_WORDS) for e in chain(error)):
        raise Unassessed(
            f"the files of {model} could not be had from the hub (at '{step}'): {first_line(error)}",
            hint="Check the network and the id, leave out --offline, or give a directory that holds the model's config.",
        ) from error
    if lacks_file(error):
        raise Unassessed(
            f"{model} needs a file that is not beside its config (at '{step}'): {first_line(error)}",
            hint="Give the whole model directory without its weights, or the hub id on a machine with network.",
        ) from error
    gone = _gone_from_vllm(error)
    if gone is not None:
        raise Unassessed(f"kvdoctor does not know this of vLLM {vllm_version()} (at '{step}'): {gone}", hint=_GAP_HINT) from error
    missing: BaseException | None = next((e for e in chain(error) if isinstance(e, ImportError)), None)
    missing = missing or next((e for e in chain(error) if _has_words(e, _MISSING_PACKAGE_WORDS)), None)
    if missing is not None:
        raise Unassessed(
            f"{model} needs a package that is not installed here (at '{step}'): {_in_one_line(words_of(missing))}",
            hint="Install it beside kvdoctor and try again.",
        ) from error
    if _NOT_INSPECTED in str(error):
        raise Unassessed(
            f"vLLM {vllm_version()} could not look at the model's class (at '{step}'): {first_line(error)}",
            hint="-v shows what failed. A package that this release needs may be missing, or be of another version.",
        ) from error
    _raise_if_accident(error, step)


_GAP_HINT = "This release does what kvdoctor was not taught. Try a newer kvdoctor, or another release with --vllm."


def _gone_from_vllm(error: BaseException) -> str | None:
    """What of vLLM is not where somebody looked for it: a module, or a name in one. It is no package that could be installed."""
    for e in chain(error):
        if isinstance(e, ImportError) and e.name is not None and e.name.partition(".")[0] == "vllm":
            return first_line(e)
    return None


def _raise_if_accident(error: Exception, step: str) -> None:
    """Raise what is ours of an accident; on a tested release an accident in vLLM's own lines is left to be a finding."""
    frames = traceback.extract_tb(error.__traceback__)
    own_line = bool(frames) and frames[-1].filename.startswith(_HERE)
    stand_in = getattr(error, "obj", None)
    own_object = stand_in is not None and type(stand_in).__module__.partition(".")[0] == "kvdoctor"
    if not (own_line or is_accident(error)):
        return
    said = f"{type(error).__name__}: {first_line(error)}"
    if own_object or (own_line and not tested()):
        raise Unassessed(f"kvdoctor does not know this of vLLM {vllm_version()} (at '{step}'): {said}", hint=_GAP_HINT) from error
    if own_line:
        raise Bug(f"{type(error).__name__} at '{step}': {first_line(error)}", hint="Please report this with the command line.") from error
    if not tested():
        raise Unassessed(
            f"the code of vLLM {vllm_version()} failed at '{step}', by no check of its own: {said}",
            hint="kvdoctor was not tested with this release: a boot may pass here. Try a newer kvdoctor, or another release with --vllm.",
        ) from error


def words_of(error: BaseException) -> str:
    """Give vLLM's words; for a bare ``assert`` the asserting line of its source, which is all that it says."""
    parts = _parts(error)
    if parts:
        # pydantic wraps what vLLM's validators raise in a frame of its own, with the input's repr and an address.
        return "\n".join(_part_of(part) for part in parts)
    if str(error).strip():
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return repr(error)
    place = "/".join(Path(frames[-1].filename).parts[-3:])
    return f"{frames[-1].line} ({place}:{frames[-1].lineno})"


def _part_of(part: dict[str, Any]) -> str:
    """One of pydantic's errors: the words of the validator where one raised, else which field and what is wrong."""
    raised = part.get("ctx", {}).get("error")
    return str(raised) if raised else f"{'.'.join(map(str, part['loc']))}: {part['msg']}"


def first_line(error: BaseException) -> str:
    """The exception's message in one line."""
    return _in_one_line(str(error).strip() or repr(error))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())[:600]


def _has_words(error: BaseException, words: tuple[str, ...]) -> bool:
    text = str(error).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return any(word in text for word in words)
