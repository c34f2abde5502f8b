"""Whose fault an exception is: vLLM's verdict, a limit of the dry launch, or kvdoctor's own bug."""

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvdoctor.dryrun.device import StandInAsked
from kvdoctor.errors import BadRequest, Bug, KvdoctorError, Unassessed

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
)
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
_HERE = str(Path(__file__).parent)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it came from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def needs_gpu(error: BaseException) -> bool:
    """Whether the exception means that only a real GPU could go on."""
    return any(isinstance(e, StandInAsked) or _has_words(e, _NO_DEVICE_WORDS) for e in chain(error))


def lacks_file(error: BaseException) -> bool:
    """Whether the model needs a file (tokenizer, processor, config) that is not at hand."""
    return any(_has_words(e, (*_MISSING_FILE_WORDS, *_NO_HUB_WORDS)) for e in chain(error))


def raise_if_ours(error: Exception, *, step: str, model: str) -> None:
    """Return when the exception is vLLM's own verdict on the launch; raise ours otherwise.

    Raises:
        BadRequest: the config names a model that this vLLM does not have.
        Unassessed: a real GPU or a missing file would be needed.
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
    if isinstance(error, ImportError):
        raise Unassessed(
            f"{model} needs a package that is not installed here (at '{step}'): {first_line(error)}",
            hint="Install it beside kvdoctor and try again.",
        ) from error
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith(_HERE):
        raise Bug(f"{type(error).__name__} at '{step}': {first_line(error)}", hint="Please report this with the command line.") from error


def words_of(error: BaseException) -> str:
    """Give vLLM's words; for a bare ``assert`` the asserting line of its source, which is all that it says."""
    if hasattr(error, "errors") and callable(error.errors):
        # pydantic wraps what vLLM's validators raise in a frame of its own, with the input's repr and an address.
        return "\n".join(_part_of(part) for part in error.errors())
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
    return " ".join((str(error).strip() or repr(error)).split())[:600]


def _has_words(error: BaseException, words: tuple[str, ...]) -> bool:
    text = str(error).lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return any(word in text for word in words)
