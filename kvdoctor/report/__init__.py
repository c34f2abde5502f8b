"""The formats of a report."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kvdoctor.compare.interface import Comparison
    from kvdoctor.compare.many import ManyComparison
    from kvdoctor.diagnosis import Diagnosis
    from kvdoctor.prefix import PrefixReport
    from kvdoctor.sweep import Sweep
    from kvdoctor.verify import Verification

__all__ = ["FORMATS", "Renderer", "render_comparison", "render_list", "render_many", "render_prefix", "render_sweep", "render_verification"]


class Renderer(Protocol):
    """A pure function from a diagnosis to text; formats for machines pay no heed to width, colour and details."""

    def __call__(self, diagnosis: "Diagnosis", *, width: int, color: bool, details: bool = False) -> str:
        """Render."""
        ...


# Each format is imported when it is asked for: the table brings rich, which the others and `--help` must not wait for.


def _table(diagnosis: "Diagnosis", *, width: int, color: bool, details: bool = False) -> str:
    from kvdoctor.report.of_diagnosis import diagnosis_document  # noqa: PLC0415 - see above
    from kvdoctor.report.to_terminal import to_terminal  # noqa: PLC0415 - see above

    return to_terminal(diagnosis_document(diagnosis), details=details, width=width, color=color)


def _json(diagnosis: "Diagnosis", *, width: int, color: bool, details: bool = False) -> str:  # noqa: ARG001 - a Renderer
    from kvdoctor.report.as_json import render_json  # noqa: PLC0415 - see above

    return render_json(diagnosis)


def _markdown(diagnosis: "Diagnosis", *, width: int, color: bool, details: bool = False) -> str:  # noqa: ARG001 - a Renderer
    from kvdoctor.report.of_diagnosis import diagnosis_document  # noqa: PLC0415 - see above
    from kvdoctor.report.to_markdown import to_markdown  # noqa: PLC0415 - see above

    return to_markdown(diagnosis_document(diagnosis))


FORMATS: dict[str, Renderer] = {"table": _table, "json": _json, "markdown": _markdown}


def render_comparison(comparison: "Comparison", report_format: str, *, width: int, color: bool) -> str:
    """Render a comparison as ``table``, ``json`` or ``markdown``."""
    if report_format == "table":
        from kvdoctor.report.compare_table import render_comparison_table  # noqa: PLC0415 - see above

        return render_comparison_table(comparison, width=width, color=color)
    if report_format == "markdown":
        from kvdoctor.report.compare_markdown import render_comparison_markdown  # noqa: PLC0415 - see above

        return render_comparison_markdown(comparison)
    return _plain_json(comparison)


def render_many(many: "ManyComparison", report_format: str, *, width: int, color: bool) -> str:
    """Render the comparison of many models as ``table``, ``json`` or ``markdown``."""
    if report_format == "table":
        from kvdoctor.report.compare_table import render_many_table  # noqa: PLC0415 - see above

        return render_many_table(many, width=width, color=color)
    if report_format == "markdown":
        from kvdoctor.report.compare_markdown import render_many_markdown  # noqa: PLC0415 - see above

        return render_many_markdown(many)
    return _plain_json(many)


def render_sweep(sweep: "Sweep", report_format: str, *, width: int, color: bool) -> str:
    """Render a sweep as ``table``, ``json``, ``csv`` or ``markdown``."""
    if report_format == "table":
        from kvdoctor.report.sweep_table import render_sweep_table  # noqa: PLC0415 - see above

        return render_sweep_table(sweep, width=width, color=color)
    if report_format == "markdown":
        from kvdoctor.report.sweep_markdown import render_sweep_markdown  # noqa: PLC0415 - see above

        return render_sweep_markdown(sweep)
    if report_format == "csv":
        from kvdoctor.report.sweep_csv import render_sweep_csv  # noqa: PLC0415 - see above

        return render_sweep_csv(sweep)
    return _plain_json(sweep)


def render_verification(verification: "Verification", report_format: str, *, width: int, color: bool) -> str:
    """Render a boot's log beside its plan as ``table``, ``json`` or ``markdown``."""
    if report_format == "json":
        return _plain_json(verification)
    from kvdoctor.report import of_verification  # noqa: PLC0415 - see above

    if report_format == "markdown":
        return of_verification.render_markdown(verification)
    return of_verification.render_table(verification, width=width, color=color)


def render_prefix(report: "PrefixReport", report_format: str, *, width: int, color: bool) -> str:
    """Render what requests take from the prefix cache as ``table`` or ``json``."""
    if report_format == "json":
        return _plain_json(report)
    from kvdoctor.report.prefix import render_prefix_table  # noqa: PLC0415 - see above

    return render_prefix_table(report, width=width, color=color)


def render_list(name: str, items: "list[dict[str, object]]") -> str:
    """Render what a command lists as JSON."""
    return _plain_json({"schema_version": 1, name: items})


def _plain_json(value: object) -> str:
    from kvdoctor.report.plain_json import render_plain_json  # noqa: PLC0415 - see above

    return render_plain_json(value)
