"""``kvdoctor explain RULE``."""

from typing import Annotated

import typer

from kvdoctor.cli.output import check_output, write_report


def run(rule: Annotated[str, typer.Argument(metavar="RULE", help="A rule's id (KV101) or name.")]) -> None:
    """Explain a rule: what it does, why that is bad, what to do."""
    from kvdoctor.rules import find_rule  # noqa: PLC0415 - `--help` must answer before the rules are read

    check_output(None)
    found = find_rule(rule)
    urls = "".join(f"- {url}\n" for url in found.urls)
    write_report(f"# {found.id} {found.name} ({found.severity})\n\n{found.documentation}\n\n## See also\n{urls}", None)
