"""What a report shows, as blocks of text: a builder (``of_*.py``) makes a document of a subject, a renderer (``to_*.py``) shows any.

Strings in here may be untrusted; the renderers escape them.
"""

from dataclasses import dataclass
from typing import Literal

from kvdoctor.rules import Finding

Tone = Literal["good", "doubtful", "bad"]
Justify = Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer, in a word and a sentence."""

    word: str
    text: str
    tone: Tone


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Labelled values; a label may be empty where a value goes on."""

    title: str | None
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of figures, and beside them names that may break anywhere: ``names`` has a list for each row, or is empty.

    ``headings`` say how each column stands as well.
    """

    title: str | None
    headings: tuple[tuple[str, Justify], ...]
    rows: tuple[tuple[str, ...], ...]
    names: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Words of vLLM's, kept as they are."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the rules found."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A sentence on its own."""

    text: str


Block = Verdict | Pairs | Table | Quote | Findings | Line


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report: its title, what everybody reads, and the details for those who ask."""

    title: str
    blocks: tuple[Block, ...]
    details: tuple[Block, ...] = ()
