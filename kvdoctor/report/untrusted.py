"""Text from models, vLLM and command lines, made safe to print.

A model name or a message may hold terminal escapes, line breaks, or Markdown; none of it may act on the reader's terminal or page.
"""

import re
import unicodedata

# Control characters (terminal escapes), format characters (right-to-left overrides), surrogates, line and paragraph separators.
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@$-])")


def visible(text: str) -> str:
    r"""Spell characters that act instead of show, ``\x1b``; line breaks stay."""
    lines = text.replace("\r\n", "\n").expandtabs(4).split("\n")
    return "\n".join("".join(_spelled(character) for character in line) for line in lines)


def one_line(text: str) -> str:
    """Make it visible, on one line."""
    return " ".join(visible(text).split())


def markdown_text(text: str) -> str:
    """Make it visible on one line, with every character that Markdown or a table would act on escaped."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))


def markdown_code(text: str) -> str:
    """Make a code span of one line, also inside a table, whatever backticks and pipes it holds."""
    shown = one_line(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or not shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", r"\|")


def markdown_block(text: str) -> str:
    """Make a fenced block that its own text cannot close."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown}\n{fence}"


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - widths of the escapes
