"""JSON files from anywhere, read so that what is wrong with one is said in one line."""

import json
import re
from pathlib import Path
from typing import Any

from kvdoctor.errors import BadRequest
from kvdoctor.text_file import read_text

MAX_DEPTH = 100
_TOO_DEEP = "its JSON is nested too deeply"
_STRING_OR_CONSTANT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:Infinity|NaN)\b', re.DOTALL)


def read_json_object(path: Path, *, what: str, unique_keys: bool = False) -> dict[str, Any]:
    """Read the JSON object in ``path``; ``what`` is what the file should be, for the error.

    ``unique_keys`` refuses a key given twice in one object. Off, the last one counts, as it does for vLLM.
    """
    hint = f"Give {what} as JSON."
    text = read_text(path, what=what)
    try:
        data = json.loads(text, parse_float=_finite, object_pairs_hook=_unique if unique_keys else None)
    except json.JSONDecodeError as error:
        raise BadRequest(f"{path} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}", hint=hint) from None
    except RecursionError:
        raise BadRequest(f"{path} is not {what}: {_TOO_DEEP}", hint=hint) from None
    except ValueError as error:  # a number with thousands of digits, or what _finite and _unique refuse
        raise BadRequest(f"{path} is not {what}: {error}", hint=hint) from None
    if not isinstance(data, dict):
        raise BadRequest(f"{path} is not {what}: it holds a JSON {_json_name(data)}, not an object", hint=hint)
    if _is_deeper(data, MAX_DEPTH):
        raise BadRequest(f"{path} is not {what}: {_TOO_DEEP}", hint=hint)
    _refuse_constants(path, text)
    return data


def _finite(number: str) -> float:
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {number[:40]} is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return data


def _refuse_constants(path: Path, text: str) -> None:
    """Refuse ``Infinity`` and ``NaN``, which Python reads although they are not JSON, and say where.

    Real configs have one use for it, the open end of a range (``"time_step_limit": [0.0, Infinity]`` in Mamba2 models), and vLLM reads
    those: an ``Infinity`` inside a list passes.
    """
    key = ""
    for token in _STRING_OR_CONSTANT.finditer(text):
        word = token[0]
        if word.startswith('"'):
            key = word[:80] if text[token.end() : token.end() + 64].lstrip().startswith(":") else key
            continue
        if word == "Infinity" and text[: token.start()].rstrip()[-1:] in ("[", ","):
            continue
        line = text.count("\n", 0, token.start()) + 1
        raise BadRequest(f"{path} is not JSON: {key} is {word} in line {line}", hint="Write a number there, or remove the key.")


def _is_deeper(data: object, limit: int) -> bool:
    level = [data]
    for _ in range(limit):
        level = [child for item in level if isinstance(item, (dict, list)) for child in (item.values() if isinstance(item, dict) else item)]
    return bool(level)


def _json_name(data: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(data), "number")
