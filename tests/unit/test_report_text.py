"""The readable formats: in order, whole numbers at any width, and nothing in them acts on a terminal or a page."""

import dataclasses
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.diagnosis import diagnose
from kvdoctor.left_out import LEFT_OUT
from kvdoctor.plan import Check, Plan, Refusal, RequestsAt
from kvdoctor.report import FORMATS
from kvdoctor.report.as_json import render_json
from tests.unit import plans
from tests.unit.strategies import any_plans

HOSTILE = "evil [bold red]x[/] \x1b[31m\x1b]0;title\x07 `code` | cell\n# heading <script>"
SAMPLES = {
    "llama": plans.llama(),
    "qwen3-next": plans.qwen3_next(),
    "51108": plans.pull_request_51108(),
    "deepseek-v3.2": plans.deepseek_v3_2(),
    "no KV cache": plans.plan(),
    "refused": dataclasses.replace(plans.pull_request_51108(), refusal=plans.HASH_REFUSAL),
}


def table(plan: Plan, *, width: int = 100, color: bool = False, details: bool = True) -> str:
    return FORMATS["table"](diagnose(plans.request(), plan), width=width, color=color, details=details)


def markdown(plan: Plan) -> str:
    return FORMATS["markdown"](diagnose(plans.request(), plan), width=1, color=False)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def hostile() -> Plan:
    members = (plans.layer(HOSTILE, spec=HOSTILE, kind="other", backend=HOSTILE),)
    made = plans.plan(plans.group(members), launch={"architecture": HOSTILE, "dtype": HOSTILE})
    return dataclasses.replace(
        made,
        engine=dataclasses.replace(made.engine, vllm_version=HOSTILE, source=HOSTILE, attention_backends={HOSTILE: 1}),
        assumptions=(HOSTILE,),
        checks=(Check(name=HOSTILE, outcome="not_checked", note=HOSTILE),),
        refusal=Refusal(stage=HOSTILE, exception=HOSTILE, message=HOSTILE),
    )


def test_the_table_shows_each_group_on_a_line() -> None:
    lines = [line.split() for line in table(plans.qwen3_next()).splitlines()]
    assert ["0", "mamba", "12", "576", "1,179,648", "1,097,728", "81,920", "6.9", "%"] in lines
    assert ["3", "full_attention", "12", "576", "1,179,648", "1,179,648", "0", "0.0", "%"] in lines


def test_a_group_with_two_page_sizes_has_a_row_for_each() -> None:
    lines = [line.split() for line in table(plans.deepseek_v3_2()).splitlines()]
    first = lines.index(["0", "mla", "2", "16", "73,728", "73,728", "0", "0.0", "%"])
    assert lines[first + 1] == ["2", "16", "8,448", "8,448", "0", "0.0", "%"]


def test_layer_names_are_folded() -> None:
    assert "model.layers.{0-31}.self_attn.attn" in table(plans.llama())
    assert "`model.layers.{0-31}.self_attn.attn`" in markdown(plans.llama())


def test_names_stand_beside_the_figures_where_there_is_room_and_below_where_not() -> None:
    for width, columns in ((80, 0), (160, 1)):
        row = [line for line in table(plans.llama(), width=width).splitlines() if "full_attention" in line][-1]
        assert row.count("model.layers.{0-31}") == columns


def test_the_parts_stand_in_the_order_in_which_they_are_read() -> None:
    text = table(plans.pull_request_51108())
    parts = ["LAUNCHES", "Memory per GPU", "KV-cache groups", "Findings", "Block sizes", "Capacity per GPU", "Launch\n"]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)


@pytest.mark.parametrize("render", [table, markdown])
@pytest.mark.parametrize(
    "fact",
    [
        "576 tokens",
        "multiples of 576 tokens",
        "2.95 requests of 262,144 tokens",
        "462 blocks, 6.09 GiB (2 + 2 + 2 + 456 by group)",
        "about 40.00 GiB, an estimate: 79.65 GiB x 0.92 - 14.96 GiB weights - 3.00 GiB allowance",
        "3 GiB for activations and CUDA graphs, a round figure",
        "h100-80g: NVIDIA H100 80GB HBM3, capability 9.0, 79.65 GiB, 132 SMs",
        "0.33.0 (installed)",
        "the kernels of the official image",
    ],
)
def test_both_formats_state_every_fact(render: object, fact: str) -> None:
    assert callable(render)
    assert fact in unwrapped(render(plans.qwen3_next()))


def test_a_given_budget_is_not_called_an_estimate() -> None:
    made = plans.plan(plans.group((plans.layer(),)), memory={"kv_cache_source": "kv_cache_memory", "kv_cache_bytes": 10 * 2**30})
    assert "KV cache 10.00 GiB, as given" in unwrapped(table(made))
    assert "an estimate" not in table(made)
    assert "has 10.00 GiB" in table(made, details=False)


def test_weights_that_do_not_fit_are_said_beside_the_layout() -> None:
    made = plans.plan(plans.group((plans.layer(),)), memory={"weights_fit": False, "kv_cache_bytes": None}, num_blocks=None)
    assert "none: the weights do not fit in 79.65 GiB x 0.92; the layout is planned as if they did" in unwrapped(table(made))
    assert "  blocks " not in table(made)


def test_pipeline_stages_are_listed() -> None:
    made = plans.llama()
    stage = dataclasses.replace(made.stages[0], layer_count=16, bytes_per_block=16 * 65_536)
    text = table(dataclasses.replace(made, stages=(stage, dataclasses.replace(stage, index=1))))
    assert "pipeline stage 1 14.96 GiB weights, 16 KV layers, 1,048,576 bytes per block" in unwrapped(text)


def test_a_refusal_shows_vllms_words_first_and_what_was_settled() -> None:
    text = unwrapped(table(SAMPLES["refused"]))
    words = unwrapped(plans.HASH_REFUSAL.message)
    assert text.index(words) < text.index("KV-cache groups") < text.index("1,114,112")
    assert "REFUSED at the scheduler (AssertionError): blocks 181 and 544 are not multiples of hash block 98,464" in text


def test_a_refusal_before_grouping_shows_the_layers_specs() -> None:
    made = dataclasses.replace(plans.refused("no", base=plans.plan()), layers=plans.deepseek_v3_2().layers)
    text = table(made)
    assert "Layer specs; vLLM refused before it grouped them" in text
    assert ["-", "mla", "2", "16", "73,728", "73,728", "0", "0.0", "%"] in [line.split() for line in text.splitlines()]
    assert "Capacity" not in text


def test_what_was_not_checked_is_said_with_the_reason() -> None:
    check = Check(name="the scheduler", outcome="not_checked", note="needs a tokenizer")
    assert "not checked the scheduler: needs a tokenizer" in unwrapped(table(dataclasses.replace(plans.llama(), checks=(check,))))


def test_what_no_dry_launch_checks_stands_in_every_report() -> None:
    """In few words on the first screen, each with its reason in the details."""
    made = plans.llama()
    for plan in (made, plans.refused("no")):
        assert "Not checked what needs the weights or the GPU" in unwrapped(table(plan, details=False))
        assert "not checked CUDA-graph capture: graphs are captured on the GPU" in unwrapped(table(plan))
    assert [text for text in markdown(made).splitlines() if text.startswith("- not checked: CUDA")] == [
        "- not checked: CUDA-graph capture: graphs are captured on the GPU"
    ]
    report = json.loads(render_json(diagnose(plans.request(), made)))
    assert [check["name"] for check in report["checks"] if check["outcome"] == "not_checked"] == [check.name for check in LEFT_OUT]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [1, 20, 40, 80, 160])
def test_no_width_cuts_or_wraps_a_number(name: str, width: int) -> None:
    plan = _with_short_names(SAMPLES[name])
    wide, narrow = (_numbers(table(plan, width=columns)) for columns in (10_000, width))
    assert narrow == wide


def _numbers(text: str) -> set[str]:
    """The words that hold a digit, less the punctuation that joins figures where there is no room for a table."""
    return {word.rstrip(",:;") for word in text.split() if re.search(r"\d", word)}


def test_a_terminal_too_narrow_for_the_groups_gets_sentences() -> None:
    lines = table(plans.qwen3_next(), width=40).splitlines()
    assert "0: kind mamba; layers 12; block 576;" in lines
    groups = lines[lines.index("KV-cache groups", lines.index("KV-cache groups") + 1) : lines.index("Block sizes")]
    assert [line for line in groups if len(line) > 40] == []


@pytest.mark.parametrize("width", [80, 160])
def test_a_groups_figures_stay_on_one_line(width: int) -> None:
    rows = [line for line in table(plans.qwen3_next(), width=width).splitlines() if re.match(r"[0-3]  (mamba|full_attention) ", line)]
    assert [re.findall(r"1,179,648 +1,\d{3},\d{3} +\S+ +\d\.\d %", row) != [] for row in rows] == [True] * 4


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_is_wider_than_a_usual_terminal(name: str, width: int) -> None:
    assert [line for line in table(SAMPLES[name], width=width).splitlines() if len(line) > width] == []


def _with_short_names(plan: Plan) -> Plan:
    """Layer names may fold anywhere; these do not fold at all."""
    groups = tuple(
        dataclasses.replace(group, layers=tuple(dataclasses.replace(layer, name="attn") for layer in group.layers)) for group in plan.groups
    )
    return dataclasses.replace(plan, groups=groups)


@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_reaches_no_terminal(color: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", table(hostile(), color=color)) if color else table(hostile(), color=color)
    assert {c for c in text if unicodedata.category(c) in {"Cc", "Cf"}} == {"\n"}
    assert "[bold red]x[/]" in unwrapped(text)


def test_hostile_text_does_not_act_in_markdown() -> None:
    text = markdown(hostile())
    outside_of_code = re.sub(r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"(?sm)^(`{3,})text\n.*?\n\1$", "", text))
    assert re.search(r"(?m)^ *# heading", outside_of_code) is None
    assert re.search(r"(?<!\\)<script>", outside_of_code) is None
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7, 10}


def test_color_adds_escapes_only_where_asked() -> None:
    assert "\x1b[" not in table(plans.qwen3_next())
    colored = table(plans.qwen3_next(), color=True)
    assert "\x1b[" in colored
    plain = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", colored).split("\n"))
    assert plain == table(plans.qwen3_next())


@pytest.mark.parametrize("name", SAMPLES)
def test_plain_reports_are_ascii_and_have_no_trailing_spaces(name: str) -> None:
    text = table(SAMPLES[name])
    assert text.isascii()
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_the_environment_does_not_change_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    before = table(plans.qwen3_next(), color=True)
    for name, value in {"COLUMNS": "30", "TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert table(plans.qwen3_next(), color=True) == before


@given(any_plans(), st.integers(1, 200))
def test_any_plan_renders_in_every_format(plan: Plan, width: int) -> None:
    text = table(plan, width=width)
    assert {c for c in text if unicodedata.category(c) in {"Cc", "Cf"}} <= {"\n"}
    for group in plan.groups:
        for layer in group.layers:
            assert re.search(rf"(?<![\d,]){layer.page_bytes:,}(?![\d,])", text)
    assert markdown(plan).startswith("## kvdoctor: `org/model on ")


def test_what_was_not_settled_is_left_out_or_said_once() -> None:
    unsettled = {
        "scheduler_block_size": None,
        "hash_block_size": None,
        "prefix_hit_tokens": None,
        "min_reusable_prefix_tokens": None,
        "num_blocks": None,
        "kv_cache_tokens": None,
        "max_concurrency": None,
        "bytes_per_block": None,
    }
    members = plans.group((plans.layer(),), kernel_block_size=None)
    text = table(plans.refused("no", base=plans.plan(members, **unsettled)))
    assert text.count("not settled") == 1
    assert "a request of 8,192 tokens costs  512 blocks\n" in text


def test_a_model_for_which_no_prefix_can_be_reused_says_so() -> None:
    assert "smallest reusable prefix none can be reused" in unwrapped(
        table(plans.plan(plans.group((plans.layer(),)), min_reusable_prefix_tokens=None))
    )


def test_the_first_screen_answers_within_a_usual_terminal() -> None:
    made = dataclasses.replace(
        plans.qwen3_next(), requests_at=(RequestsAt(tokens=8192, requests=260.7), RequestsAt(tokens=262_144, requests=2.95))
    )
    lines = table(made, width=80, details=False).splitlines()
    assert len(lines) <= 24
    assert lines[0] == "org/model on 1 x h100-80g, vLLM 0.33.0"
    assert lines[2].startswith("LAUNCHES  ")
    assert "Requests at once  8k: 260 | 256k: 2.95" in lines
    assert "Prefix caching    on; reuses multiples of 576 tokens, nothing shorter" in lines
    assert [line.split() for line in lines if "mamba" in line] == [["0-2", "mamba", "3", "x", "12", "576", "1,179,648", "6.9", "%"]]


def test_the_first_screen_keeps_names_settings_and_steps_for_those_who_ask() -> None:
    first, all_of_it = (table(plans.llama(), details=details) for details in (False, True))
    for part in ("model.layers.{0-31}", "Launch steps", "max_num_seqs"):
        assert (part in first, part in all_of_it) == (False, True)


def test_a_finding_for_information_takes_no_advice_on_the_first_screen() -> None:
    text = table(plans.qwen3_next(), details=False)
    (finding,) = [finding for finding in diagnose(plans.request(), plans.qwen3_next()).findings if finding.rule == "KV302"]
    assert finding.message in unwrapped(text)
    assert finding.url not in text
    assert finding.url in table(plans.qwen3_next())
