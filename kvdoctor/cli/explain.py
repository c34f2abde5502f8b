"""``kvdoctor explain RULE``."""

from pathlib import Path
from typing import Annotated

import typer

from kvdoctor.cli.output import check_output, write_report
from kvdoctor.errors import BadRequest

With = Annotated[Path | None, typer.Option("--with", metavar="REPORT.json", help="Show what the rule made of this saved report.")]


def run(rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule's id (KV101) or name.")], with_report: With = None) -> None:
    """Explain a rule: what it does, why that is bad, what to do; and on the figures of a report, what it found there."""
    from kvdoctor.rules import find_rule  # noqa: PLC0415 - `--help` must answer before the rules are read

    check_output(None)
    found = find_rule(rule)
    urls = "".join(f"- {url}\n" for url in found.urls)
    told = "" if with_report is None else f"\n## In this report\n{_in_report(found.id, with_report)}"
    write_report(f"# {found.id} {found.name} ({found.severity})\n\n{found.documentation}\n\n## See also\n{urls}{told}", None)


def _in_report(rule: str, path: Path) -> str:
    from kvdoctor.json_file import read_json_object  # noqa: PLC0415 - as above
    from kvdoctor.report.as_json import read_report  # noqa: PLC0415 - as above
    from kvdoctor.report.rule_in_report import rule_in_report  # noqa: PLC0415 - as above

    data = read_json_object(path, what="a saved report")
    if "findings" not in data or "layout" not in data:
        raise BadRequest(f"{path} is no report of kvdoctor inspect", hint="Write one: kvdoctor inspect MODEL --format json --output FILE.")
    return rule_in_report(rule, read_report(data, what=str(path)))
