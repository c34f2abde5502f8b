"""``kvdoctor rules``."""

from kvdoctor.cli.output import check_output, write_report


def run() -> None:
    """List the rules."""
    from kvdoctor.rules import RULES  # noqa: PLC0415 - `--help` must answer before the rules are read

    check_output(None)
    rows = [(rule.id, rule.severity, rule.name, rule.summary) for rule in RULES]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows]
    write_report("\n".join(lines) + "\n", None)
