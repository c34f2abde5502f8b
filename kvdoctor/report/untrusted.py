"""Text from models, vLLM and command lines, made safe to print.

A model name or a message may hold terminal escapes, line breaks, or Markdown; none of it may act on the reader's terminal or page.
"""

import re
import unicodedata

# Control characters (terminal escapes), format characters (right-to-left overrides), surrogates, line and paragraph separators.
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# What Markdown acts on inside a line, and what starts a list, a heading or a rule at the start of one.
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>|~&$]|^(?:[#+=-]|[0-9]+(?=[.)](?: |$)))")

# GitHub's runner obeys a line that begins with `::name::`, blanks before it or not, and as Azure's does, `##[name]` anywhere in one.
# After any blank, since a line may be broken there later; invisible characters in front do not count as none.
_ANYWHERE = re.compile(r"##(?=\[|vso\[)")
_COMMAND = re.compile(rf"(?<!\S)::(?=[A-Za-z])|{_ANYWHERE.pattern}")

_ADDRESS = re.compile(r"https?://[\w./#?&=%:@+~-]+", re.ASCII)


def visible(text: str) -> str:
    r"""Spell characters that act instead of show, ``\x1b``, and what a CI's log takes for a command; line breaks stay."""
    lines = _COMMAND.sub(lambda found: f"\\x{ord(found[0][0]):02x}{found[0][1:]}", text).replace("\r\n", "\n").expandtabs(4).split("\n")
    return "\n".join("".join(_spelled(character) for character in line) for line in lines)


def one_line(text: str) -> str:
    """Make it visible, on one line."""
    return " ".join(visible(text).split())


def json_text(text: str) -> str:
    """Spell in JSON that is ASCII already what a CI's log would take for a command; it stays the same JSON."""
    return _ANYWHERE.sub(r"\\u0023#", text)


def markdown_text(text: str) -> str:
    """Make it visible on one line, with every character that Markdown or a table would act on escaped."""
    return _MARKDOWN.sub(_escape, one_line(text))


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Make a code span of one line, whatever backticks it holds. A pipe ends a table's cell even inside a span."""
    shown = one_line(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or not shown else ""
    if in_table:
        shown = shown.replace("|", r"\|")
    return f"{fence}{pad}{shown}{pad}{fence}"


def markdown_link(text: str, url: str) -> str:
    """Make a link of ``text``; an address that is none of the web's, or that Markdown would not keep whole, is left out."""
    return f"[{markdown_text(text)}]({url})" if _ADDRESS.fullmatch(url) else markdown_text(text)


def markdown_block(text: str) -> str:
    """Make a fenced block that its own text cannot close."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"


def _escape(found: re.Match[str]) -> str:
    # A number that starts a line is a list's when a dot follows: it is the dot that has to be escaped.
    return f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}"


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode-escape", "surrogatepass").decode("ascii")
