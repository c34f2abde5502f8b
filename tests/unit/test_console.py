"""What goes to stderr acts on no terminal and no CI, and tells no secret."""

import pytest

from kvdoctor.cli import console
from kvdoctor.errors import BadRequest
from kvdoctor.secrets import Curtain


@pytest.fixture(autouse=True)
def nothing_hidden_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_hidden", Curtain())


def test_an_error_is_two_lines_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    console.say_error(BadRequest("a\n::error::b \x1b[31m", hint="c\n##[group]d"))
    assert capsys.readouterr().err == "kvdoctor: a \\x3a:error::b \\x1b[31m\n  c \\x23#[group]d\n"


def test_a_workers_log_is_set_off_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.say_log("loading\r 50 %\r100 %\n::error::no\n  ::warning file=a::no\n\x1b]0;title\x07\n##vso[task.complete]\n\n")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "  | loading",
        "  |  50 %",
        "  | 100 %",
        "  | \\x3a:error::no",
        "  |   \\x3a:warning file=a::no",
        "  | \\x1b]0;title\\x07",
        "  | \\x23#vso[task.complete]",
    ]


def test_no_line_of_a_traceback_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("Traceback\n::error::x\n")
    assert "\n::" not in capsys.readouterr().err


def test_the_secrets_of_a_launch_are_on_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.hide(("--api-key", "sk-1234abcd"), {"VLLM_API_KEY": "hunter2!"})
    console.say_error(BadRequest("sk-1234abcd is wrong", hint="hunter2! too"))
    console.say_log("got sk-1234abcd")
    assert capsys.readouterr().err == "kvdoctor: *** is wrong\n  *** too\n  | got ***\n"
