"""What requests take from the prefix cache, as a table."""

import shlex

from rich.text import Text

from kvdoctor.prefix import PrefixReport, PrefixSetting
from kvdoctor.report.page import Columns, Page
from kvdoctor.report.untrusted import one_line
from kvdoctor.rules.numbers import grouped, percent


def render_prefix_table(report: PrefixReport, *, width: int, color: bool) -> str:
    """Show the requests under the settings given, then the sums under each setting."""
    page = Page(width=width, color=color)
    page.title(one_line(" ".join([report.model, *([f"-- {shlex.join(report.vllm_args)}"] if report.vllm_args else [])])))
    asked, given = report.question, report.settings[0]
    more = grouped(asked.prompt_tokens - asked.shared_tokens)
    prompts = f"{asked.requests} prompts of {grouped(asked.prompt_tokens)} tokens that share {grouped(asked.shared_tokens)}"
    page.pairs(
        [
            ("vLLM", f"{report.vllm_version}, assumed on {report.gpu}"),
            ("prefix caching", {True: "on", False: "off", None: "not settled"}[report.prefix_caching]),
            ("asked", f"{prompts}; a conversation of {asked.turns} turns that grows by {more} tokens"),
        ]
    )
    page.heading("Requests in turn, as given")
    _put_hits(page, given)
    if len(report.settings) > 1:
        page.heading("The same under other settings")
        _put_settings(page, report.settings)
    page.blank()
    page.put(Text(one_line(closing_line(report))))
    return page.text()


def closing_line(report: PrefixReport) -> str:
    """Say what share came from the cache, and under which setting it is most."""
    given = report.settings[0]
    if given.why_not:
        return f"nothing was served: {given.why_not}"
    best = max(report.settings, key=lambda setting: setting.cached_tokens)
    line = f"{percent(_share(given))} of the prompts comes from the cache"
    return line if best.cached_tokens <= given.cached_tokens else f"{line}; {percent(_share(best))} with {best.change}"


def _put_hits(page: Page, setting: PrefixSetting) -> None:
    if setting.why_not:
        page.put(Text(one_line(setting.why_not)), indent=2)
        return
    columns, hits = Columns(), setting.hits
    columns.add("request", [Text(f"{hit.scenario} {hit.number}") for hit in hits])
    columns.add("prompt", [Text(grouped(hit.prompt_tokens)) for hit in hits], justify="right")
    columns.add("from the cache", [Text(grouped(hit.cached_tokens)) for hit in hits], justify="right")
    columns.add("computed", [Text(grouped(hit.prompt_tokens - hit.cached_tokens)) for hit in hits], justify="right")
    page.put_columns(columns)


def _put_settings(page: Page, settings: tuple[PrefixSetting, ...]) -> None:
    columns = Columns()
    columns.add("setting", [Text(one_line(setting.change)) for setting in settings])
    columns.add("hits on multiples of", [Text(grouped(setting.prefix_hit_tokens or 0)) for setting in settings], justify="right")
    for scenario in ("shared prefix", "conversation"):
        columns.add(f"{scenario}, from the cache", [Text(_of(setting, scenario)) for setting in settings], justify="right")
    page.put_columns(columns)
    for setting in settings:
        if setting.why_not:
            page.put(Text(one_line(f"{setting.change}: {setting.why_not}")), indent=2)


def _of(setting: PrefixSetting, scenario: str) -> str:
    hits = [hit for hit in setting.hits if hit.scenario == scenario]
    prompts = sum(hit.prompt_tokens for hit in hits)
    return percent(100 * sum(hit.cached_tokens for hit in hits) / prompts) if prompts else "-"


def _share(setting: PrefixSetting) -> float:
    prompts = sum(hit.prompt_tokens for hit in setting.hits)
    return 100 * setting.cached_tokens / prompts if prompts else 0.0
