"""The base of everything that stands for something real: what nobody taught it to answer is our gap, never vLLM's verdict.

vLLM moves private names with every release. An attribute, a method or a keyword that a stand-in does not know must not end as an
``AttributeError`` in vLLM's traceback, where it would pass for vLLM's word on the launch.
"""

import inspect
from typing import Any, ClassVar

# What this process asked stand-ins in vain, whoever caught the exception: vLLM may take another way where it does (0.33's GEMM-AR), and a
# plan made that way says so.
asked_in_vain: list[str] = []


class StandInAsked(RuntimeError):
    """A stand-in for the GPU was asked for something that it cannot answer; a limit of kvdoctor, never vLLM's verdict."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the dry launch has no answer to {what}: it needs a real GPU")
        asked_in_vain.append(what)


class Untaught(StandInAsked):
    """A stand-in was asked for something that kvdoctor does not know of this vLLM. Not an ``AttributeError``: nothing may default on it."""

    def __init__(self, what: str) -> None:
        RuntimeError.__init__(self, f"kvdoctor does not know this of vLLM {vllm_version()}: {what}")
        asked_in_vain.append(what)


class StandIn:
    """Answers what it was taught, and names what it was not. Before a class of vLLM's among the bases, so that this is asked first."""

    stands_for: ClassVar[str | None] = None  # what a message calls it, where its class's name does not say it

    def __getattr__(self, name: str) -> Any:
        """Say what was asked: called only for what the object does not have."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise Untaught(f"{name} of {type(self).stands_for or type(self).__name__.lstrip('_')}")


def call(stand_in: object, method: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Call ``method`` of a stand-in as vLLM asks for it.

    Raises:
        Untaught: the stand-in has no such method, or the method does not take these arguments.
    """
    who = type(stand_in).__name__.lstrip("_")
    function = getattr(type(stand_in), method, None)
    if function is None:
        raise Untaught(f"{method} of {who}")
    try:
        inspect.signature(function).bind(stand_in, *args, **(kwargs or {}))
    except TypeError as error:
        raise Untaught(f"{method} of {who}: {error}") from None
    return function(stand_in, *args, **(kwargs or {}))


def vllm_version() -> str:
    """The release that answers, for messages."""
    import vllm

    return str(vllm.__version__)
