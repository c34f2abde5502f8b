"""A grid of launches: what varies, in which order, and what is kept of each plan."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvdoctor.diagnosis import Diagnosis, Verdict, verdict_line
from kvdoctor.errors import BadRequest, KvdoctorError
from kvdoctor.secrets import hide_setting
from kvdoctor.waste import empty_percent

SCHEMA_VERSION = 1
MAX_CELLS = 10_000

Column = Literal["tokens", "concurrency", "waste", "block"]

# What is varied beside vLLM's own arguments: kvdoctor's options of these names.
OWN = ("vllm", "gpu", "kv-cache-memory")
_HINT = "Write --vary NAME=VALUE,VALUE with the name of one of vLLM's arguments, or vllm, gpu or kv-cache-memory."
# vLLM's short options of one dash: -tp, -dcp. Those of one letter are written with it.
_SHORT = (2, 3)
_OPENING, _CLOSING = "{[", "}]"


@dataclass(frozen=True, kw_only=True)
class Variation:
    """One thing that varies, and its values in the order given."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One launch of the grid: each variation's value, and the model as written; ``None`` where a pasted command or layer specs name it."""

    model: str | None
    values: dict[str, str]

    @property
    def vllm_arguments(self) -> tuple[str, ...]:
        """Spell the values of vLLM's own arguments as words of its command line."""
        return tuple(word for name, value in self.values.items() if name not in OWN for word in _words(name, value))


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """What is kept of one launch. ``summary`` is its report's last line, or the reason why there is no plan.

    ``wasted_percent`` is the empty share of what a full-length request holds. ``best`` marks the best launch of its model.
    """

    model: str
    values: dict[str, str]
    verdict: Verdict
    block_size: int | None
    hash_block_size: int | None
    wasted_percent: float | None
    kv_cache_tokens: int | None
    max_concurrency: float | None
    best: bool
    summary: str


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep's rows in the order of the grid; after an interruption there are fewer than ``planned``."""

    schema_version: int
    kvdoctor_version: str
    models: tuple[str, ...]
    vllm_args: tuple[str, ...]
    varied: dict[str, tuple[str, ...]]
    best_by: Column
    planned: int
    rows: tuple[SweepRow, ...]


def parse_variations(texts: Iterable[str]) -> tuple[Variation, ...]:
    """Read the values of ``--vary``. A name given again adds values; a comma inside a JSON object, list or string splits nothing.

    Raises:
        BadRequest: a text is no variation.

    """
    values: dict[str, dict[str, None]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        # A dotted name ends in a key of a JSON value, whose underscores are its own.
        head, dot, key = name.strip().removeprefix("--").partition(".")
        name = head.replace("_", "-") + dot + key
        if not head or not equals or any(character.isspace() for character in name):
            raise BadRequest(f"--vary {text!r} has no name and values", hint=_HINT)
        if name == "model":
            raise BadRequest("--vary cannot vary the model", hint="Give several models: kvdoctor sweep MODEL MODEL --vary ...")
        given = [value.strip() for value in _split(listed)]
        if not all(given):
            raise BadRequest(f"--vary {text!r} has an empty value", hint="To leave an argument out, give it the value default.")
        values.setdefault(name, {}).update(dict.fromkeys(given))
    if not values:
        raise BadRequest("nothing varies", hint=_HINT)
    return tuple(Variation(name=name, values=tuple(given)) for name, given in values.items())


def make_grid(models: Sequence[str | None], variations: Sequence[Variation]) -> tuple[Cell, ...]:
    """Combine every model with every value; the last variation moves fastest.

    Raises:
        BadRequest: the grid is too large.

    """
    size = len(models)
    for variation in variations:
        size *= len(variation.values)
    if size > MAX_CELLS:
        raise BadRequest(f"the grid has {size:,} launches, more than {MAX_CELLS:,}", hint="Vary less at once.")
    return tuple(_cells(models, variations))


def read_row(cell: Cell, outcome: Diagnosis | KvdoctorError) -> SweepRow:
    """Keep what a row shows of a report, or the reason why there is none."""
    values = {name: hide_setting(name, value) for name, value in cell.values.items()}
    if isinstance(outcome, KvdoctorError):
        return SweepRow(
            model=cell.model or "",
            values=values,
            verdict="unassessed",
            block_size=None,
            hash_block_size=None,
            wasted_percent=None,
            kv_cache_tokens=None,
            max_concurrency=None,
            best=False,
            summary=outcome.message,
        )
    layout = outcome.layout
    return SweepRow(
        model=cell.model or outcome.request.model or "layer specs given directly",
        values=values,
        verdict=outcome.verdict,
        block_size=layout.scheduler_block_size,
        hash_block_size=layout.hash_block_size,
        wasted_percent=empty_percent(layout, outcome.launch.max_model_len),
        kv_cache_tokens=layout.kv_cache_tokens,
        max_concurrency=layout.max_concurrency,
        best=False,
        summary=verdict_line(outcome),
    )


def mark_best(rows: Iterable[SweepRow], column: Column) -> tuple[SweepRow, ...]:
    """Mark each model's best launch by ``column``, all of them where several are equal; what does not launch is never best."""
    listed = list(rows)
    best: dict[str, float] = {}
    for row in listed:
        score = _score(row, column)
        if score is not None:
            best[row.model] = max(score, best.get(row.model, score))
    return tuple(replace(row, best=row.model in best and _score(row, column) == best[row.model]) for row in listed)


def _score(row: SweepRow, column: Column) -> float | None:
    """Give a number of which more is better."""
    value = {
        "tokens": row.kv_cache_tokens,
        "concurrency": row.max_concurrency,
        "waste": row.wasted_percent,
        "block": row.block_size,
    }[column]
    if value is None or row.verdict not in ("ok", "warning"):
        return None
    return -value if column in ("waste", "block") else value


def _cells(models: Sequence[str | None], variations: Sequence[Variation]) -> Iterator[Cell]:
    names = [variation.name for variation in variations]
    for model, *values in itertools.product(models, *(variation.values for variation in variations)):
        yield Cell(model=model, values=dict(zip(names, map(str, values), strict=True)))


def _words(name: str, value: str) -> tuple[str, ...]:
    flag = name if name.startswith("-") else f"-{name}" if len(name) in _SHORT else f"--{name}"
    if value == "default":
        return ()
    if value == "on":
        return (flag,)
    if value == "off":
        return (f"--no-{name}",)
    # A value that looks like an option must hang on to its own.
    return (f"{flag}={value}",) if value.startswith("-") else (flag, value)


def _split(text: str) -> Iterator[str]:
    """Split at commas that are neither inside a JSON object, list or string."""
    start, depth, quoted, escaped = 0, 0, False, False
    for at, character in enumerate(text):
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]
