"""Values of a specs file against the annotations of vLLM's spec classes: they are dataclasses, and take whatever they are given."""

import math
import re
from fractions import Fraction
from typing import Any

LARGEST = 2**40
_TUPLE = re.compile(r"tuple\[(?P<item>.*), \.\.\.\]", re.IGNORECASE)


def fault(annotation: Any, default: Any, value: Any) -> str | None:
    """Say what is wrong with ``value``, as JSON gave it, for a field with this annotation and default; ``None`` when nothing is."""
    kinds = _kinds(annotation)
    if value is None:
        return None if "None" in kinds or default is None else f"is null, not {_named(kinds)}"
    if isinstance(value, bool):
        wrong = None if "bool" in kinds else f"is {'true' if value else 'false'}, not {_named(kinds)}"
    elif isinstance(value, (int, float)):
        wrong = _number_fault(kinds, default, value)
    elif isinstance(value, str):
        wrong = _text_fault(kinds, value)
    elif isinstance(value, list):
        wrong = _list_fault(kinds, value)
    else:
        wrong = f"is an object, not {_named(kinds)}"
    return wrong


def _list_fault(kinds: list[str], value: list[Any]) -> str | None:
    items = [found["item"] for kind in kinds if (found := _TUPLE.fullmatch(kind))]
    if not items:
        return f"is a list, not {_named(kinds)}"
    if not value:
        return "is an empty list"
    return next((wrong for item in value if (wrong := fault(items[0], ..., item)) is not None), None)


def _number_fault(kinds: list[str], default: Any, value: float) -> str | None:
    if "float" not in kinds and not ("int" in kinds and isinstance(value, int)):
        return f"is {value!r}, not {_named(kinds)}"
    if isinstance(value, int) and not isinstance(default, bool) and value == default:
        return None  # -1 and 0 mean something where vLLM has them itself
    if not math.isfinite(value) or value < 0 or (value == 0 and "int" in kinds):
        return f"is {value}, which is less than 1" if "int" in kinds else f"is {value}, and must not be negative"
    return f"is {value}, which is too large" if value > LARGEST else None


def _text_fault(kinds: list[str], value: str) -> str | None:
    if "Fraction" in kinds:
        try:
            return None if Fraction(value) > 0 else f"is {value!r}, which is not positive"
        except (ValueError, ZeroDivisionError):
            return f"is {value!r}, not a number or a fraction like '1/4'"
    # Of vLLM's own types, dtypes and enums are written by name.
    own = [kind for kind in kinds if kind not in ("int", "float", "bool", "None", "str") and not _TUPLE.fullmatch(kind)]
    return None if "str" in kinds or (own and "int" not in kinds) else f"is {value!r}, not {_named(kinds)}"


def _kinds(annotation: Any) -> list[str]:
    """Give the parts of a union, as the source writes them."""
    written = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)
    if "[" in str(annotation) and not isinstance(annotation, str):
        written = str(annotation)
    if "|" in written and "[" not in written:
        return [part.strip() for part in written.split("|")]
    return [written.strip()]


def _named(kinds: list[str]) -> str:
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "None": "null", "Fraction": "a fraction"}
    known = [names.get(kind) or ("a list" if _TUPLE.fullmatch(kind) else "a name") for kind in kinds if kind != "MultipleOf"]
    return " or ".join(dict.fromkeys(known))
