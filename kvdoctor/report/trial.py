"""The test of a release, for a terminal or as JSON."""

from rich.text import Text

from kvdoctor.report.page import Page
from kvdoctor.report.plain_json import render_plain_json
from kvdoctor.report.untrusted import one_line
from kvdoctor.trial import BUDGET_BYTES, Conclusion, Outcome, SampleTrial, Trial, counts

_OUTCOME_STYLES: dict[Outcome, str] = {"planned": "bold green", "refused": "bold red", "not assessed": "bold yellow"}
_CONCLUSION_STYLES: dict[Conclusion, str] = {"usable": "bold green", "partly usable": "bold yellow", "not usable": "bold red"}


def render_trial(trial: Trial, report_format: str, *, width: int, color: bool) -> str:
    """Render a test as ``table`` or ``json``."""
    if report_format == "json":
        return render_plain_json(trial)
    page = Page(width=width, color=color)
    against = "" if trial.baseline is None else f", against vLLM {trial.baseline}"
    page.title(one_line(f"vLLM {trial.version} ({trial.source}){against}"))
    page.heading(f"Names that the dry launch needs: {trial.names - len(trial.lost)} of {trial.names} there")
    for lost in trial.lost:
        page.put(Text.assemble((one_line(lost.name), "bold"), f" {_what(lost.what, one_line(lost.detail))} ({lost.use})"), indent=2)
    page.heading(f"Samples, each with {BUDGET_BYTES // 2**30} GiB for the KV cache")
    for sample in trial.samples:
        _put_sample(page, sample)
    page.blank()
    page.put(Text(one_line(f"{trial.conclusion}: {counts(trial)}"), style=_CONCLUSION_STYLES[trial.conclusion]))
    return page.text()


def _put_sample(page: Page, sample: SampleTrial) -> None:
    same = sample.before == sample.outcome == "planned" and not sample.changes and not sample.unchecked
    before = f", before: {sample.before}" if sample.before not in {None, sample.outcome} else ""
    page.put(
        Text.assemble(
            f"{one_line(sample.name)}: ", (sample.outcome, _OUTCOME_STYLES[sample.outcome]), before, ", as before" if same else ""
        ),
        indent=2,
    )
    if sample.reason is not None:
        page.put(Text(one_line(sample.reason)), indent=4)
    for change in sample.changes:
        page.put(Text(one_line(f"{change.figure} {change.before or '-'} -> {change.after or '-'}")), indent=4)
    if sample.unchecked:
        page.put(Text(one_line(f"no longer checked: {', '.join(sample.unchecked)}")), indent=4)


def _what(what: str, detail: str) -> str:
    return f"is gone: {detail}" if what == "gone" else detail
