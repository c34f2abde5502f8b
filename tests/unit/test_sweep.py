"""A sweep's grid, its best row, and its formats."""

import csv
import io
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kvdoctor.diagnosis import diagnose
from kvdoctor.errors import BadRequest, Unassessed
from kvdoctor.report import render_sweep
from kvdoctor.report.plain_json import load_schema_of
from kvdoctor.sweep import SCHEMA_VERSION, Cell, Sweep, SweepRow, Variation, make_grid, mark_best, parse_variations, read_row
from tests.unit import plans
from tests.unit.test_report_text import HOSTILE

VALIDATOR = Draft202012Validator(load_schema_of("sweep"))


def row(**changes: Any) -> SweepRow:
    fields: dict[str, Any] = {
        "model": "m",
        "values": {"tensor-parallel-size": "1"},
        "verdict": "ok",
        "block_size": 16,
        "hash_block_size": 16,
        "wasted_percent": 0.0,
        "kv_cache_tokens": 1000,
        "max_concurrency": 1.5,
        "best": False,
        "summary": "launches",
    }
    return SweepRow(**fields | changes)


def sweep(*rows: SweepRow, planned: int | None = None) -> Sweep:
    return Sweep(
        schema_version=SCHEMA_VERSION,
        kvdoctor_version="0.0.0",
        models=tuple(dict.fromkeys(made.model for made in rows)),
        vllm_args=(),
        varied={"tensor-parallel-size": ("1", "2")},
        best_by="tokens",
        planned=len(rows) if planned is None else planned,
        rows=rows,
    )


def variation(text: str) -> tuple[str, tuple[str, ...]]:
    (made,) = parse_variations([text])
    return made.name, made.values


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("tensor-parallel-size=1,2", "tensor-parallel-size", ("1", "2")),
        ("--tensor_parallel_size=1, 2,1", "tensor-parallel-size", ("1", "2")),
        (
            'speculative-config={"method": "mtp", "n": [1,2]},{"a": "},"}',
            "speculative-config",
            ('{"method": "mtp", "n": [1,2]}', '{"a": "},"}'),
        ),
        ('x="a,b",c', "x", ('"a,b"', "c")),
        (r'x={"a": "\","},2', "x", (r'{"a": "\","}', "2")),
        ("speculative-config.num_speculative_tokens=1,2", "speculative-config.num_speculative_tokens", ("1", "2")),
        ("-tp=1,2", "-tp", ("1", "2")),
        ("served-model-name=a=b", "served-model-name", ("a=b",)),
    ],
)
def test_values_are_split_at_commas_outside_json(text: str, name: str, values: tuple[str, ...]) -> None:
    assert variation(text) == (name, values)


def test_a_name_given_again_adds_values() -> None:
    assert parse_variations(["a-b=1", "c=x", "a_b=2"]) == (Variation(name="a-b", values=("1", "2")), Variation(name="c", values=("x",)))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "nothing varies"),
        (["tp"], "no name"),
        (["=1"], "no name"),
        (["a b=1"], "no name"),
        (["tp=1,,2"], "empty"),
        (["model=a"], "model"),
    ],
)
def test_what_is_no_variation_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse_variations(texts)


def test_every_model_meets_every_value_and_the_last_moves_fastest() -> None:
    cells = make_grid(["m", "n"], parse_variations(["tp=1,2", "dtype=a,b"]))
    assert [(cell.model, *cell.values.values()) for cell in cells][:5] == [
        ("m", "1", "a"),
        ("m", "1", "b"),
        ("m", "2", "a"),
        ("m", "2", "b"),
        ("n", "1", "a"),
    ]
    assert len(cells) == 8


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tensor-parallel-size", "2", ("--tensor-parallel-size", "2")),
        ("enable-expert-parallel", "on", ("--enable-expert-parallel",)),
        ("enable-expert-parallel", "off", ("--no-enable-expert-parallel",)),
        ("max-num-seqs", "default", ()),
        ("x", "-1", ("--x=-1",)),
        ("-tp", "2", ("-tp", "2")),
        ("tp", "2", ("-tp", "2")),
        ("dcp", "4", ("-dcp", "4")),
        ("gpu", "b200", ()),
        ("vllm", "0.32.0", ()),
        ("kv-cache-memory", "40GiB", ()),
    ],
)
def test_a_value_becomes_words_of_vllms_command_line(name: str, value: str, words: tuple[str, ...]) -> None:
    assert Cell(model=None, values={name: value}).vllm_arguments == words


def test_a_grid_that_would_run_for_hours_is_refused() -> None:
    values = ",".join(map(str, range(101)))
    with pytest.raises(BadRequest, match="10,201 launches"):
        make_grid([None], parse_variations([f"a={values}", f"b={values}"]))


def test_a_row_keeps_the_figures_of_its_report() -> None:
    cell = Cell(model=None, values={"gpu": "h100-80g"})
    assert read_row(cell, diagnose(plans.request(), plans.llama())) == row(
        model="org/model",
        values={"gpu": "h100-80g"},
        kv_cache_tokens=16_000,
        max_concurrency=2.95,
        summary="launches: block 16, hash block 16; 0.0 % of a full request's blocks is empty",
    )


def test_a_row_without_a_plan_keeps_the_reason() -> None:
    made = read_row(Cell(model="m", values={}), Unassessed("no answer within 3 s", hint="h"))
    assert (made.verdict, made.kv_cache_tokens, made.summary) == ("unassessed", None, "no answer within 3 s")


@pytest.mark.parametrize(("column", "best"), [("tokens", [1, 2]), ("concurrency", [0]), ("waste", [2]), ("block", [0])])
def test_the_best_rows_are_marked_equals_too(column: Any, best: list[int]) -> None:
    rows = (
        row(kv_cache_tokens=1, max_concurrency=3.0, wasted_percent=2.0, block_size=16),
        row(kv_cache_tokens=2, max_concurrency=2.0, wasted_percent=3.0, block_size=32),
        row(kv_cache_tokens=2, max_concurrency=1.0, wasted_percent=1.0, block_size=64),
        row(kv_cache_tokens=9, max_concurrency=9.0, wasted_percent=0.0, block_size=1, verdict="refused"),
        row(kv_cache_tokens=None, max_concurrency=None, wasted_percent=None, block_size=None),
    )
    assert [at for at, made in enumerate(mark_best(rows, column)) if made.best] == best


def test_each_model_has_its_own_best() -> None:
    rows = mark_best((row(model="a", kv_cache_tokens=1), row(model="b", kv_cache_tokens=2), row(model="b", kv_cache_tokens=1)), "tokens")
    assert [made.best for made in rows] == [True, True, False]


def test_json_fits_the_schema() -> None:
    data = json.loads(render_sweep(sweep(row(), row(wasted_percent=None, verdict="refused")), "json", width=1, color=False))
    assert [error.message for error in VALIDATOR.iter_errors(data)] == []


def test_csv_has_plain_numbers_and_the_names_of_the_json() -> None:
    text = render_sweep(sweep(row(kv_cache_tokens=1_000_000, best=True), row(kv_cache_tokens=None)), "csv", width=1, color=False)
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["tensor-parallel-size"], first["kv_cache_tokens"], first["best"]) == ("1", "1000000", "true")
    assert (second["kv_cache_tokens"], second["best"]) == ("", "false")


def test_the_table_has_a_row_a_launch_and_marks_the_best() -> None:
    text = render_sweep(sweep(row(kv_cache_tokens=1_000_000, best=True), row()), "table", width=100, color=False)
    lines = [line.split() for line in text.splitlines()]
    assert ["*", "1", "ok", "16", "16", "0.0", "%", "1,000,000", "1.50"] in lines
    assert ["1", "ok", "16", "16", "0.0", "%", "1,000", "1.50"] in lines
    assert text.splitlines()[-1] == "2 of 2 rows launch; * most tokens"


def test_a_reason_that_many_rows_share_is_told_once() -> None:
    rows = [row(verdict="refused", block_size=None, summary="refused: heads") for _ in range(3)]
    text = render_sweep(sweep(*rows), "table", width=100, color=False)
    assert text.count("refused: heads") == 1
    assert "(1) refused: heads" in text.splitlines()


def test_the_model_is_a_column_only_where_there_are_several() -> None:
    assert "model" not in render_sweep(sweep(row()), "table", width=100, color=False).splitlines()[2].split()
    assert "model" in render_sweep(sweep(row(), row(model="n")), "table", width=100, color=False).splitlines()[2].split()


def test_an_interrupted_sweep_says_how_much_is_missing() -> None:
    text = render_sweep(sweep(row(), planned=12), "table", width=100, color=False)
    assert text.splitlines()[-1] == "1 of 1 row launches (stopped: 11 of 12 not planned)"


@pytest.mark.parametrize("report_format", ["table", "markdown", "csv"])
def test_nothing_acts_on_a_terminal_or_a_page(report_format: str) -> None:
    made = sweep(row(model=HOSTILE, summary=HOSTILE, verdict="refused"), row(values={"tensor-parallel-size": HOSTILE}))
    text = render_sweep(made, report_format, width=80, color=False)
    assert "\x1b" not in text
    assert not any(line.startswith("# heading") for line in text.splitlines())
