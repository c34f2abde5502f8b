"""The formats of a report."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvdoctor.diagnosis import Diagnosis

__all__ = ["FORMATS", "Renderer"]


class Renderer(Protocol):
    """A pure function from a diagnosis to text; formats for machines pay no heed to width and colour."""

    def __call__(self, diagnosis: "Diagnosis", *, width: int, color: bool) -> str:
        """Render."""
        ...


# Each format is imported when it is asked for: the table brings rich, which the others and `--help` must not wait for.


def _table(diagnosis: "Diagnosis", *, width: int, color: bool) -> str:
    from kvdoctor.report.table import render_table  # noqa: PLC0415 - see above

    return render_table(diagnosis, width=width, color=color)


def _json(diagnosis: "Diagnosis", *, width: int, color: bool) -> str:  # noqa: ARG001 - a Renderer
    from kvdoctor.report.as_json import render_json  # noqa: PLC0415 - see above

    return render_json(diagnosis)


def _markdown(diagnosis: "Diagnosis", *, width: int, color: bool) -> str:  # noqa: ARG001 - a Renderer
    from kvdoctor.report.markdown import render_markdown  # noqa: PLC0415 - see above

    return render_markdown(diagnosis)


FORMATS: dict[str, Renderer] = {"table": _table, "json": _json, "markdown": _markdown}
