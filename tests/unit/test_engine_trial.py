"""``kvdoctor engines test`` without vLLM: what it plans, with what it compares, and how it ends."""

import dataclasses
import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from kvdoctor.assess import Launch, Outcome, Planning
from kvdoctor.cli import engine_trial, engines
from kvdoctor.cli.engine_trial import SAMPLES, source_of, try_engine
from kvdoctor.cli.main import run
from kvdoctor.engines import releases
from kvdoctor.engines.interface import Engine
from kvdoctor.engines.trials import read_trial
from kvdoctor.errors import BadRequest, Unassessed
from kvdoctor.trial import BUDGET_BYTES, Trial
from tests.unit import plans

NEW = "9.9.9"


class Service(Planning):
    """Finds folders of ours for engines, and plans each launch as a small model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[Launch] = []

    def engine(self, text: str | None) -> Engine:
        return Engine(python=sys.executable, source=f"release {text}, fetched", vllm_version=text, notes=(), path=(str(self.folder),))

    def submit(self, launch: Launch) -> int:
        self.seen.append(launch)
        return len(self.seen) - 1

    def outcomes(self, on_step: object = None) -> Iterator[tuple[int, Outcome]]:
        del on_step
        return ((number, self.outcome(launch)) for number, launch in enumerate(self.seen))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def outcome(self, _launch: Launch) -> Outcome:
        return plans.llama()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setenv("KVDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    monkeypatch.setattr(engine_trial, "examine", lambda *_arguments: ())
    made = Service(tmp_path)
    monkeypatch.setattr(engines, "planning", lambda **_options: made)
    return made


def tried(service: Service, text: str | None = NEW, *, samples: Path | None = None) -> Trial:
    return try_engine(text, service, samples=samples, quiet=True, note=lambda _text: None)


def test_each_sample_is_planned_by_the_release_and_by_the_newest_tested_one(service: Service) -> None:
    trial = tried(service)
    versions = [job.engine.vllm_version for job in service.seen]
    assert versions == [NEW, releases.TESTED[-1]] * len(SAMPLES)
    assert {job.request.kv_cache_memory_bytes for job in service.seen} == {BUDGET_BYTES}
    assert {job.request.gpu.name for job in service.seen} == {"h100-80g"}
    assert tuple(sample.name for sample in trial.samples) == SAMPLES
    assert (trial.version, trial.baseline, trial.conclusion) == (NEW, releases.TESTED[-1], "usable")


def test_the_newest_tested_release_is_compared_with_the_one_before_it(service: Service) -> None:
    assert tried(service, releases.TESTED[-1]).baseline == releases.TESTED[-2]
    assert service.seen


def test_a_checkout_is_compared_with_the_release_that_it_calls_itself(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = dataclasses.replace(service.engine(releases.TESTED[-1]), source="checkout /x")
    monkeypatch.setattr(service, "engine", lambda text: checkout if text == "/x" else Service.engine(service, text))
    assert tried(service, "/x").baseline == releases.TESTED[-1]
    assert len({job.engine for job in service.seen}) == 2


def test_without_a_tested_release_at_hand_nothing_is_compared(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_new(text: str) -> Engine:
        if text != NEW:
            raise Unassessed("not fetched", hint="h")
        return Service.engine(service, text)

    monkeypatch.setattr(service, "engine", only_new)
    assert tried(service).baseline is None
    assert len(service.seen) == len(SAMPLES)


def test_a_wheel_brings_the_samples_that_are_planned() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped == {f"sample_configs/{name}": f"kvdoctor/samples/{name}" for name in SAMPLES}


def test_what_the_tested_release_cannot_plan_here_either_says_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Unassessed("planning took more than 1 seconds", hint="h")
    monkeypatch.setattr(service, "outcome", lambda _launch: late)
    with pytest.raises(Unassessed) as caught:
        tried(service)
    tested = releases.TESTED[-1]
    assert caught.value.message == (
        f"nothing can be said of vLLM {NEW}: vLLM {tested} cannot plan the samples here either: planning took more than 1 seconds"
    )
    assert read_trial(NEW) is None
    assert service.seen


def test_samples_of_the_users_own_are_launched_as_they_say(service: Service, tmp_path: Path) -> None:
    (tmp_path / "mine/model").mkdir(parents=True)
    (tmp_path / "mine/model/config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "mine/model/launch.toml").write_text('gpu = "b200"\nargs = ["--max-num-seqs", "8"]\n')
    assert [sample.name for sample in tried(service, samples=tmp_path / "mine").samples] == ["model"]
    assert {(job.request.gpu.name, job.request.vllm_args) for job in service.seen} == {("b200", ("--max-num-seqs", "8"))}


@pytest.mark.parametrize("launch", ['args = ["--trust-remote-code"]', "args = 3"])
def test_a_sample_that_cannot_be_launched_as_it_says_leaves_the_others(service: Service, tmp_path: Path, launch: str) -> None:
    for name in ("bad", "good"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "mine/bad/launch.toml").write_text(launch)
    trial = tried(service, samples=tmp_path / "mine")
    assert [(sample.name, sample.outcome) for sample in trial.samples] == [("bad", "not assessed"), ("good", "planned")]
    assert len(service.seen) == 2


def test_the_source_is_where_the_engine_imports_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(python=sys.executable, source="x", vllm_version=None, notes=())
    (tmp_path / "wheel/vllm").mkdir(parents=True)
    (tmp_path / "wheel/vllm/__init__.py").touch()
    beside = dataclasses.replace(engine, path=(str(tmp_path / "beside"), str(tmp_path / "wheel")))
    assert source_of(beside) == tmp_path / "wheel"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: SimpleNamespace(origin=str(tmp_path / "site/vllm/__init__.py")))
    assert source_of(engine) == tmp_path / "site"
    with pytest.raises(BadRequest, match="the source of python:/x is not at hand"):
        source_of(dataclasses.replace(engine, python="/x", source="python:/x"))


def test_a_usable_release_ends_in_0_and_is_listed_so(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engines", "test", NEW, "-q"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "usable: 10 of 10 samples planned, 0 names gone or changed"
    assert service.seen
    kept = read_trial(NEW)
    assert kept is not None
    assert kept.conclusion == "usable"


def test_a_result_that_cannot_be_kept_is_shown_all_the_same(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cache").write_text("a file")
    assert run(["engines", "test", NEW]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("vLLM 9.9.9 (release 9.9.9, fetched), against")
    assert "the result cannot be kept in" in told.err
    assert service.seen


@pytest.mark.parametrize(("planned", "code"), [(3, 1), (0, 3)])
def test_a_release_of_partial_or_no_use_ends_in_1_or_3(service: Service, monkeypatch: pytest.MonkeyPatch, planned: int, code: int) -> None:
    def outcome(launch: Launch) -> Outcome:
        news = [job for job in service.seen if job.engine.vllm_version == NEW]
        return Unassessed("no answer", hint="h") if launch in news[planned:] else plans.llama()

    monkeypatch.setattr(service, "outcome", outcome)
    assert run(["engines", "test", NEW, "-q", "--format", "json"]) == code
    assert service.seen
