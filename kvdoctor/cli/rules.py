"""``kvdoctor rules``."""

from kvdoctor.cli import options
from kvdoctor.cli.output import check_output, write_report


def run(list_format: options.ListFormatOption = options.ListFormat.TABLE) -> None:
    """List the rules."""
    from kvdoctor.report import render_list  # noqa: PLC0415 - `--help` must answer before these are read
    from kvdoctor.rules import RULES  # noqa: PLC0415 - as above

    check_output(None)
    if list_format is options.ListFormat.JSON:
        keys = ("id", "name", "severity", "summary", "documentation", "urls")
        write_report(render_list("rules", [{key: getattr(rule, key) for key in keys} for rule in RULES]), None)
        return
    rows = [(rule.id, rule.severity, rule.name, rule.summary) for rule in RULES]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows]
    write_report("\n".join(lines) + "\n", None)
