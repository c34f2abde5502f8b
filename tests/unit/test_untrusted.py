"""Untrusted text can not act on a terminal, a table or a page."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdoctor.report.untrusted import json_text, markdown_block, markdown_code, markdown_link, markdown_text, one_line, visible

any_text = st.text(st.characters())  # surrogates and controls too


@given(any_text)
def test_no_control_format_or_surrogate_character_is_left(text: str) -> None:
    assert {unicodedata.category(c) for c in visible(text).replace("\n", "")} & {"Cc", "Cf", "Cs", "Zl", "Zp"} == set()


@given(st.text(st.sampled_from("a:#[] \n\t\r\x1b\u200b")))
def test_no_line_begins_with_a_command_of_a_ci(text: str) -> None:
    for line in visible(text).split("\n"):
        assert re.match(r"\s*::[A-Za-z]", line) is None
        assert "##[" not in line


@given(any_text)
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eevil", "\\u202eevil"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\rb"),
        ("Grüße 漢字", "Grüße 漢字"),
        ("a\n::error::b", "a\n\\x3a:error::b"),
        ("  ::stop-commands::x", "  \\x3a:stop-commands::x"),
        ("a ##[error]b ##vso[task]", "a \\x23#[error]b \\x23#vso[task]"),
        ("torch::jit and ::1 and a:: b", "torch::jit and ::1 and a:: b"),
    ],
)
def test_what_acts_is_spelled_and_what_shows_is_kept(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("**a** <b> `c`", "\\*\\*a\\*\\* \\<b\\> \\`c\\`"),
        ("[a](b)", "\\[a\\](b)"),
        ("a\nb", "a b"),
        ("# a", "\\# a"),
        ("- a", "\\- a"),
        ("1. a", "1\\. a"),
        ("max-num-seqs 1.5", "max-num-seqs 1.5"),
        ("&lt;", "\\&lt;"),
    ],
)
def test_markdown_text_is_inert(text: str, escaped: str) -> None:
    assert markdown_text(text) == escaped


@pytest.mark.parametrize(("text", "span"), [("a", "`a`"), ("a`b", "`` a`b ``"), ("a\nb", "`a b`"), ("", "`  `")])
def test_a_code_span_holds_backticks_and_pipes(text: str, span: str) -> None:
    assert markdown_code(text) == span


def test_a_pipe_is_escaped_in_a_span_only_inside_a_table() -> None:
    assert (markdown_code("a|b"), markdown_code("a|b", in_table=True)) == ("`a|b`", "`a\\|b`")


def test_a_fenced_block_is_not_closed_by_its_own_text() -> None:
    assert markdown_block("a\n```\n# b") == "````text\na\n```\n# b\n````"


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("https://github.com/vllm-project/vllm/issues/54607", "[a\\*](https://github.com/vllm-project/vllm/issues/54607)"),
        ("javascript:alert(1)", "a\\*"),
        ("https://a.b) <script>", "a\\*"),
        ("https://a.b\n# c", "a\\*"),
        ("", "a\\*"),
    ],
)
def test_only_a_webs_address_becomes_a_link(url: str, link: str) -> None:
    assert markdown_link("a*", url) == link


@given(any_text | st.text(st.sampled_from("#[vso")))
def test_json_says_the_same_without_a_command_of_a_ci(text: str) -> None:
    shown = json_text(json.dumps(text))
    assert json.loads(shown) == text
    assert "##[" not in shown
    assert "##vso[" not in shown
