"""The same request gets the same report: what measures or names one run is not in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.reproducible import same_every_time, timeless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Initializing model took 0.531712 seconds", "Initializing model took ... seconds"),
        ("Model loading took 15.0 GiB memory and 1.234567 seconds", "Model loading took 15.0 GiB memory and ... seconds"),
        ("finished in 0.53s", "finished in ...s"),
        ("GC took 3.120ms to complete", "GC took ...ms to complete"),
        ("Graph capturing finished in 5 secs, took 0.10 GiB", "Graph capturing finished in 5 secs, took 0.10 GiB"),
        ("took 5 secs", "took ... secs"),
        ("at 2026-12-03 11:54:23,101 and 2026-12-03T11:54:23Z", "at ... and ..."),
        ("INFO 12-03 12:07:38 [utils.py:381]", "INFO ... [utils.py:381]"),
        ("waits up to 30 seconds", "waits up to 30 seconds"),
        ("Padding mamba page size by 8.68% of 1.5 GiB, block 0.33.0", "Padding mamba page size by 8.68% of 1.5 GiB, block 0.33.0"),
    ],
)
def test_a_log_does_not_tell_the_time(text: str, shown: str) -> None:
    assert timeless(text) == shown


def test_addresses_processes_ports_and_temporary_folders_are_named_alike() -> None:
    text = "<Spec object at 0x7f00aa12bc34> (EngineCore pid=123) tcp://127.0.0.1:43210 /scratch/kvdoctor-x/model/config.json 0x1f"
    shown = "<Spec object at ...> (EngineCore pid=...) tcp://127.0.0.1:... my.json/config.json 0x1f"
    assert same_every_time(text, {"/scratch/kvdoctor-x/model": "my.json", "/scratch/kvdoctor-x": "<temporary folder>"}) == shown


@given(st.text())
def test_what_is_left_out_once_is_left_out(text: str) -> None:
    assert timeless(timeless(text)) == timeless(text)
