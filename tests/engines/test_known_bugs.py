"""KV901 from the releases themselves: on one that has the bug, and not on the one that has the fix."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.at_hand import engine_at_hand
from tests.launches import sample_launch

ROOT = Path(__file__).parents[2]
# What both ends of a bug's life make of one launch: the number of its issue, the sample, more arguments, affected, fixed.
LIVES = [
    ("53142", "qwen3.5-0.8b-hidden-states", (), "0.31.0", "0.32.0"),
    ("57032", "qwen3-next-80b-a3b-mtp", (), "0.30.0", "0.31.0"),
    ("34445", "qwen3-next-80b-a3b", ("--max-num-batched-tokens=256", "--max-num-seqs=64", "--enable-prefix-caching"), "0.26.0", "0.27.1"),
    ("40585", "qwen3-next-80b-a3b", ("--decode-context-parallel-size=2", "--enable-prefix-caching"), "0.25.1", "0.26.0"),
    ("47174", "deepseek-v4-flash", (), "0.29.0", "0.30.0"),
    ("48435", "gemma-3-12b", (), "0.28.0", "0.29.0"),
]


def issues(sample: str, more: tuple[str, ...], release: str) -> set[str]:
    launch = sample_launch(sample)
    command = ["inspect", f"sample_configs/{sample}", "--vllm", release, "--gpu", launch["gpu"], "--format", "json", "--select", "KV901"]
    printed = subprocess.run(
        [sys.executable, "-m", "kvdoctor", *command, "--", *launch["args"], *more],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return {finding["url"].rpartition("/")[2] for finding in json.loads(printed.stdout)["findings"]}


@pytest.mark.parametrize(("issue", "sample", "more", "affected", "fixed"), LIVES, ids=[life[0] for life in LIVES])
def test_a_known_bug_is_told_on_the_release_that_has_it_and_not_on_the_fixed_one(
    issue: str, sample: str, more: tuple[str, ...], affected: str, fixed: str
) -> None:
    for release in (affected, fixed):
        engine_at_hand(release)
    assert issue in issues(sample, more, affected)
    assert issue not in issues(sample, more, fixed)
