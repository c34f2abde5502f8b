"""Frozen dataclasses to and from JSON's own types; the one codec for requests, plans and reports."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """Turn dataclasses, tuples and mappings into dicts, lists and scalars that ``json`` accepts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(kind: type[T], data: object) -> T:
    """Rebuild ``kind`` from what :func:`to_plain` gave.

    Raises ``ValueError`` that names the key when the data does not have the dataclass's shape.
    """
    return cast("T", _build(kind, data, kind.__name__))


def _build(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(cast("type[Any]", kind), data, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        present = [a for a in arguments if a is not type(None)]
        return _build(present[0], data, where) if len(present) == 1 else data
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{where} is not a list")
        kinds = [arguments[0]] * len(data) if arguments[-1] is ... else list(arguments)
        return tuple(_build(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, data, strict=True)))
    if origin in (dict, Mapping):
        if not isinstance(data, dict):
            raise ValueError(f"{where} is not an object")
        return {key: _build(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if origin is typing.Literal:
        if data not in arguments:
            raise ValueError(f"{where} is {data!r}, not one of {', '.join(map(repr, arguments))}")
        return data
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(kind, type) and kind not in (object, Any) and type(data) is not kind:
        raise ValueError(f"{where} is {type(data).__name__}, not {kind.__name__}")
    return data


def _build_dataclass(kind: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    missing = [name for name in names if name not in data]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return kind(**{name: _build(hints[name], data[name], f"{where}.{name}") for name in names})
