"""A page of text for a terminal.

Everything that holds a number keeps it whole: a table too wide for the terminal becomes sentences, and a word that is too long overflows.
"""

import io
from collections.abc import Sequence
from typing import Literal

from rich.box import Box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

# A line under the header and nothing else, in ASCII: it survives any encoding, and a copy into a ticket.
HEAD_LINE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_DOUBT, _BAD = "bold yellow", "bold red"
VERDICT_STYLES = {"ok": "bold green", "warning": _DOUBT, "borderline": _DOUBT, "refused": _BAD, "failed": _BAD, "unassessed": _DOUBT}
_NO_LIMIT = 1_000_000


class Columns:
    """Collects a table column by column, so that each can be made as wide as what must stay whole in it."""

    def __init__(self) -> None:
        self._table = Table(box=HEAD_LINE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style=Style(dim=True))
        self._headings: list[str] = []
        self._cells: list[Sequence[Text]] = []

    def add(self, heading: str, cells: Sequence[Text], *, justify: Literal["left", "right"] = "left", fold: bool = False) -> None:
        """Add a column. With ``fold`` its cells may break at spaces; without, each stays on its line."""
        texts = [heading, *(cell.plain for cell in cells)]
        whole = texts if not fold else [word for text in texts for word in text.split()]
        self._table.add_column(Text(heading), justify=justify, no_wrap=not fold, min_width=max(map(len, whole), default=0))
        self._headings.append(heading)
        self._cells.append(cells)

    def add_names(self, heading: str, cells: Sequence[Text], *, width: int) -> None:
        """Add a column of names, which may break anywhere to be no wider than ``width``."""
        self._table.add_column(Text(heading), overflow="fold", max_width=width)
        self._headings.append(heading)
        self._cells.append(cells)

    def table(self) -> Table:
        """Give the table."""
        for row in zip(*self._cells, strict=True):
            self._table.add_row(*row)
        return self._table

    def sentences(self) -> list[Text]:
        """Give a sentence for each row: what a terminal too narrow for the table can hold without breaking a number."""
        return [self._sentence(row) for row in zip(*self._cells, strict=True)]

    def _sentence(self, row: Sequence[Text]) -> Text:
        named = [Text.assemble(f"{heading} ", cell) for heading, cell in zip(self._headings[1:], row[1:], strict=True) if cell.plain]
        gap = (": " if self._headings[0] else " ") if named and row[0].plain else ""
        return Text.assemble(row[0], gap, Text("; ").join(named))


class Page:
    """Collects rendered parts, each as wide as the page or as its longest word, whichever is more."""

    def __init__(self, *, width: int, color: bool) -> None:
        self.width = max(width, 1)
        self._file = io.StringIO()
        # The caller has asked the environment (COLUMNS, NO_COLOR, TERM); with all of it given, the text is the same everywhere.
        self._console = Console(
            file=self._file,
            width=self.width,
            height=100,
            no_color=not color,
            color_system="standard" if color else None,
            force_terminal=color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            force_jupyter=False,
        )
        self._empty = True

    def text(self) -> str:
        """Give the page, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._file.getvalue().split("\n"))

    def put(self, part: RenderableType, *, indent: int = 0) -> None:
        """Print a part as wide as the page, or as its longest word where that is more."""
        self._print(part, self.measure(part).minimum, indent)

    def put_whole(self, part: RenderableType, *, indent: int = 0) -> None:
        """Print a part in its full width, however narrow the page."""
        self._print(part, self.measure(part).maximum, indent)

    def put_columns(self, columns: Columns) -> None:
        """Put the columns as a table; where the page is too narrow for its numbers, as sentences that fold between them."""
        table = columns.table()
        if self.measure(table).minimum <= self.width:
            self.put(table)
            return
        for sentence in columns.sentences():
            self.put(sentence)

    def measure(self, part: RenderableType) -> Measurement:
        """Measure how narrow and how wide a part can be."""
        return Measurement.get(self._console, self._console.options.update(max_width=_NO_LIMIT), part)

    def _print(self, part: RenderableType, minimum: int, indent: int) -> None:
        self._console.width = max(self.width, minimum + indent)
        self._console.print(Padding(part, (0, 0, 0, indent)))
        self._empty = False

    def blank(self) -> None:
        """Leave a line free, but not at the top."""
        if not self._empty:
            self._file.write("\n")

    def title(self, text: str) -> None:
        """Put the title of the page."""
        self.put(Text(text, style="bold"))

    def heading(self, text: str) -> None:
        """Put a heading, with a free line before it."""
        self.blank()
        self.put(Text(text, style="bold blue"))

    def pairs(self, rows: list[tuple[str, str]], *, indent: int = 2) -> None:
        """Put labels, and their values beside them."""
        label_width = max(len(label) for label, _ in rows)
        grid = Table.grid(Column(no_wrap=True, min_width=label_width, style="dim"), Column(), padding=(0, 2, 0, 0), pad_edge=False)
        for label, value in rows:
            grid.add_row(Text(label), Text(value))
        self.put(grid, indent=indent)
