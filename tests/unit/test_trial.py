"""The test of a release: what it concludes, how it is kept, and what is told of it."""

import dataclasses
import json
from pathlib import Path

import pytest

from kvdoctor.engines.fetch import as_engine
from kvdoctor.engines.store import Manifest, StoredEngine, Wheel
from kvdoctor.engines.trials import forget_trial, keep_trial, read_trial, trial_notes
from kvdoctor.errors import Unassessed
from kvdoctor.plan import Check, Plan, Refusal
from kvdoctor.report.trial import render_trial
from kvdoctor.trial import Change, Conclusion, Lost, SampleTrial, Trial, conclude, in_short, try_sample
from tests.unit import plans

GONE = Lost(name="vllm.x:f", what="gone", detail="the module has no f", use="the plan")
NO_NETWORK = Unassessed("no answer", hint="h")
ACCIDENT = Refusal(stage="the scheduler", exception="AttributeError", message="no x", accident=True)


def refused(refusal: Refusal = plans.HASH_REFUSAL) -> Plan:
    return dataclasses.replace(plans.llama(), refusal=refusal)


def test_a_sample_planned_as_before_has_nothing_to_tell() -> None:
    sample = try_sample("llama", plans.llama(), plans.llama())
    assert sample == SampleTrial(name="llama", outcome="planned", reason=None, before="planned", unchecked=(), changes=())


def test_each_figure_that_moved_is_told() -> None:
    now = dataclasses.replace(plans.llama(), hash_block_size=64, num_blocks=None)
    before = dataclasses.replace(plans.llama(), hash_block_size=16, num_blocks=20_480)
    assert try_sample("llama", now, before).changes == (
        Change(figure="hash block", before="16", after="64"),
        Change(figure="blocks", before="20,480", after=None),
    )


def test_a_step_that_is_no_longer_checked_is_told() -> None:
    check = Check(name="smallest reusable prefix", outcome="not_checked", note="AttributeError: x")
    sample = try_sample("llama", dataclasses.replace(plans.llama(), checks=(check,)), plans.llama())
    assert (sample.outcome, sample.unchecked) == ("planned", ("smallest reusable prefix",))
    assert conclude((), [sample]) == "partly usable"


def test_of_a_sample_that_is_no_longer_planned_the_reason_is_told_and_not_each_figure() -> None:
    sample = try_sample("llama", refused(), plans.llama())
    assert (sample.before, sample.changes) == ("planned", ())
    assert sample.reason is not None
    assert sample.reason.startswith("the scheduler: AssertionError: Each KV cache group's real block_size")


def test_an_accident_in_vllms_code_is_no_refusal() -> None:
    assert try_sample("x", refused(ACCIDENT), plans.llama()).outcome == "not assessed"
    assert try_sample("x", refused(), plans.llama()).outcome == "refused"


@pytest.mark.parametrize(
    ("lost", "samples", "conclusion"),
    [
        ((), [(plans.llama(), plans.llama())], "usable"),
        ((), [(plans.llama(), None)], "usable"),
        ((), [(plans.llama(), plans.llama()), (refused(), refused())], "usable"),
        ((GONE,), [(plans.llama(), plans.llama())], "partly usable"),
        ((), [(plans.llama(), plans.llama()), (refused(), plans.llama())], "partly usable"),
        ((), [(plans.llama(), plans.llama()), (NO_NETWORK, plans.llama())], "partly usable"),
        ((), [(plans.llama(), None), (refused(), None)], "partly usable"),
        ((), [(NO_NETWORK, plans.llama()), (refused(), plans.llama())], "not usable"),
        ((), [], "not usable"),
    ],
)
def test_the_conclusion_is_usable_only_when_nothing_is_lost(
    lost: tuple[Lost, ...], samples: list[tuple[Plan | Unassessed, Plan | Unassessed | None]], conclusion: Conclusion
) -> None:
    assert conclude(lost, [try_sample("x", got, before) for got, before in samples]) == conclusion


def trial(version: str = "9.9.9", *, conclusion: Conclusion = "partly usable", kvdoctor_version: str | None = None) -> Trial:
    from kvdoctor import __version__  # noqa: PLC0415 - the version under test

    return Trial(
        schema_version=1,
        kvdoctor_version=kvdoctor_version or __version__,
        version=version,
        source="release 9.9.9, fetched",
        baseline="0.33.0",
        tested_at="2026-12-03T12:00:00+00:00",
        names=100,
        lost=(GONE,),
        samples=(
            try_sample(
                "llama", dataclasses.replace(plans.llama(), hash_block_size=64), dataclasses.replace(plans.llama(), hash_block_size=16)
            ),
            try_sample("moved\x1b[31m", NO_NETWORK, plans.llama()),
            try_sample("same", plans.llama(), plans.llama()),
        ),
        conclusion=conclusion,
    )


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_result_is_kept_until_it_is_forgotten() -> None:
    assert read_trial("9.9.9") is None
    keep_trial(trial(conclusion="usable"))
    keep_trial(trial())
    assert read_trial("9.9.9") == trial()
    assert read_trial("9.9.8") is None
    forget_trial("9.9.9")
    assert read_trial("9.9.9") is None
    forget_trial("9.9.9")


def test_the_result_of_another_kvdoctor_counts_for_nothing() -> None:
    keep_trial(trial(kvdoctor_version="0.0.1"))
    assert read_trial("9.9.9") is None


def test_a_result_spoilt_by_another_hand_counts_for_nothing(cache: Path) -> None:
    keep_trial(trial())
    [path] = (cache / "engines/trials").iterdir()
    for text in ("", "{", "[]", "{}", '{"schema_version": 1}'):
        path.write_text(text)
        assert read_trial("9.9.9") is None


@pytest.mark.parametrize("version", ["../../x", "", "of the checkout", "/etc/passwd"])
def test_what_is_no_version_names_no_file(cache: Path, version: str) -> None:
    keep_trial(trial(version))
    assert read_trial(version) is None
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_told(cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(Unassessed, match="the result cannot be kept"):
        keep_trial(trial())


def test_reports_of_an_untested_release_say_what_its_test_found() -> None:
    manifest = Manifest(
        vllm=Wheel(name="vllm", version="9.9.9", wheel="vllm.whl", sha256="0" * 64, index_hash=True),
        beside=(),
        beside_note=None,
        requires_dist=(),
        files=1,
        bytes=1,
        added="2026-01-01T00:00:00+00:00",
    )
    stored = StoredEngine(folder=Path("/engine"), manifest=manifest)
    assert as_engine(stored).dependency_notes == ()
    keep_trial(trial())
    assert as_engine(stored).dependency_notes == (
        "kvdoctor engines test found vLLM 9.9.9 partly usable on 2026-12-03: 2 of 3 samples planned, 1 name gone or changed",
    )


def test_a_tested_release_needs_no_such_word() -> None:
    keep_trial(trial("0.33.0"))
    assert trial_notes("0.33.0") == ()


def test_the_report_says_what_is_gone_what_changed_and_what_that_means() -> None:
    assert render_trial(trial(), "table", width=200, color=False).splitlines() == [
        "vLLM 9.9.9 (release 9.9.9, fetched), against vLLM 0.33.0",
        "",
        "Names that the dry launch needs: 99 of 100 there",
        "  vllm.x:f is gone: the module has no f (the plan)",
        "",
        "Samples, each with 40 GiB for the KV cache",
        "  llama: planned",
        "    hash block 16 -> 64",
        r"  moved\x1b[31m: not assessed, before: planned",
        "    no answer",
        "  same: planned, as before",
        "",
        "partly usable: 2 of 3 samples planned, 1 name gone or changed",
    ]


def test_the_same_report_is_there_as_json() -> None:
    told = json.loads(render_trial(trial(), "json", width=80, color=False))
    assert (told["conclusion"], told["lost"][0]["name"], told["samples"][0]["changes"][0]["after"]) == ("partly usable", "vllm.x:f", "64")
    assert in_short(trial()).startswith("kvdoctor engines test found vLLM 9.9.9 partly usable")
