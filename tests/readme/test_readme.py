"""The README holds what the product does: its transcripts are run, its tables are made, its set-up commands are those of the gate."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvdoctor.engines.releases import PARTLY, TESTED
from kvdoctor.rules import RULES
from tests.engines.at_hand import engine_at_hand

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TRANSCRIPT = re.compile(r"```console\n\$ (?P<command>(?:[^\n]*\\\n)*(?:[^\n']|'[^']*')*\n)(?P<output>.*?)```", re.DOTALL)
SECTION = r"<!-- {0} -->\n(.*?)<!-- /{0} -->"


def _transcripts() -> list[re.Match[str]]:
    return list(TRANSCRIPT.finditer(README.read_text(encoding="utf-8")))


@pytest.mark.parametrize("index", range(4))
def test_a_transcript_is_what_the_command_prints(index: int, request: pytest.FixtureRequest) -> None:
    transcript = _transcripts()[index]
    command = transcript["command"]
    for release in re.findall(r"--(?:before|after)-vllm (\S+)|-(\d+\.\d+\.\d+)\.log", command):
        engine_at_hand(release[0] or release[1])
    printed = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    ).stdout
    if request.config.getoption("--update-golden"):
        _write(transcript["output"], printed)
        return
    assert _masked(transcript["output"]) == _masked(printed)


def _masked(text: str) -> str:
    """The text less the version of transformers, which moves without vLLM."""
    return re.sub(r"transformers \d[\w.]*", "transformers X", text)


def test_the_readme_has_the_four_transcripts() -> None:
    assert [match["command"].split()[1] for match in _transcripts()] == ["compare", "inspect", "inspect", "verify"]


def _rule_table() -> str:
    rows = "".join(f"| {rule.id} | {rule.severity} | {rule.name} | {rule.summary} |\n" for rule in RULES)
    return f"| id | severity | name | what it says |\n|---|---|---|---|\n{rows}"


def _release_table() -> str:
    return (
        "| releases | how far |\n|---|---|\n"
        f"| {', '.join(TESTED)} | each passes the same tests over ten samples |\n"
        f"| {', '.join(PARTLY)} | as far as they go |\n"
        "| others | tried, with a note that they are untested |\n"
    )


@pytest.mark.parametrize(("section", "table"), [("rules", _rule_table()), ("releases", _release_table())], ids=["rules", "releases"])
def test_a_table_is_made_from_the_code(section: str, table: str, request: pytest.FixtureRequest) -> None:
    found = re.search(SECTION.format(section), README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    if request.config.getoption("--update-golden"):
        _write(f"<!-- {section} -->\n{found[1]}<!-- /{section} -->", f"<!-- {section} -->\n{table}<!-- /{section} -->")
        return
    assert found[1] == table


def test_the_gate_installs_and_tests_as_the_readme_says() -> None:
    setup = next(line for line in README.read_text(encoding="utf-8").splitlines() if line.endswith("/pytest"))
    commands = [command.replace(".venv/bin/", "") for command in setup.split(" && ")]
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert commands[1:3] == ['pip install --upgrade "pip>=25.1"', 'pip install -e ".[vllm]" --group dev']
    for command in commands[1:]:
        assert re.search(rf"^{re.escape(command).replace('install', 'install( --quiet)?', 1)}( |$)", gate, re.MULTILINE), command


@pytest.mark.skipif(shutil.which("bash") is None, reason="the README's commands are for a POSIX shell")
def test_every_command_of_the_usage_list_is_one_that_kvdoctor_has() -> None:
    section = README.read_text(encoding="utf-8").partition("## Use")[2].partition("```sh")[2].partition("```")[0]
    usage = re.findall(r"^kvdoctor (\w+)", section, re.MULTILINE)
    told = subprocess.run([sys.executable, "-m", "kvdoctor", "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(usage) <= set(re.findall(r"^  (\w+)  ", told, re.MULTILINE))


def _write(old: str, new: str) -> None:
    text = README.read_text(encoding="utf-8")
    if old:
        text = text.replace(old, new, 1)
    else:  # a transcript whose output was never written
        empty = next(match for match in TRANSCRIPT.finditer(text) if not match["output"])
        text = text[: empty.start("output")] + new + text[empty.start("output") :]
    README.write_text(text, encoding="utf-8")
