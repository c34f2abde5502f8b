"""The report of every sample, as last reviewed. ``pytest tests/golden --update-golden`` writes them anew, to be read as a diff."""

import difflib
from pathlib import Path

import pytest

from kvdoctor.diagnosis import diagnose
from kvdoctor.report import FORMATS
from tests.launches import Launches, launch_request, launched_samples, sample_launch, without_paths

HERE = Path(__file__).parent
WIDTH = 100


@pytest.mark.parametrize("sample", launched_samples())
def test_the_report_of_a_sample_is_the_one_that_was_reviewed(sample: str, request: pytest.FixtureRequest, launches: Launches) -> None:
    report = sample_report(launches, sample)
    golden = HERE / f"{sample}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(report, encoding="utf-8")
        return
    reviewed = golden.read_text(encoding="utf-8") if golden.exists() else ""
    difference = "".join(difflib.unified_diff(reviewed.splitlines(True), report.splitlines(True), f"{golden.name} (reviewed)", "now"))
    assert difference == "", f"the report of {sample} has changed; if it is right: pytest tests/golden --update-golden\n{difference}"


def test_every_report_belongs_to_a_sample() -> None:
    assert sorted(path.stem for path in HERE.glob("*.txt")) == launched_samples()


def sample_report(launches: Launches, sample: str) -> str:
    """What ``kvdoctor inspect --details`` shows for the sample launched as its ``launch.toml`` says, from the root of a checkout."""
    launch = sample_launch(sample)
    args = tuple(launch["args"])
    plan = launches.plan(sample, args, gpu=launch["gpu"])
    diagnosis = diagnose(launch_request(sample, args, gpu=launch["gpu"]), without_paths(plan))
    return FORMATS["table"](diagnosis, width=WIDTH, color=False, details=True)
