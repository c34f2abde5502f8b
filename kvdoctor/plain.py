"""Frozen dataclasses to and from JSON's own types; the one codec for requests, plans and reports."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
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
    build = _build_dataclass if dataclasses.is_dataclass(kind) else _BUILDERS.get(typing.get_origin(kind), _scalar)
    return build(kind, data, where)


def _build_optional(kind: Any, data: Any, where: str) -> Any:
    arguments = typing.get_args(kind)
    present = [argument for argument in arguments if argument is not type(None)]
    if data is None and len(present) < len(arguments):
        return None
    return _build(present[0], data, where) if len(present) == 1 else data


def _build_tuple(kind: Any, data: Any, where: str) -> Any:
    arguments = typing.get_args(kind)
    if not isinstance(data, list):
        raise ValueError(f"{where} is not a list")  # noqa: TRY004 - one error type for data of the wrong shape
    kinds = [arguments[0]] * len(data) if arguments[-1] is ... else list(arguments)
    return tuple(_build(item_kind, item, f"{where}[{i}]") for i, (item_kind, item) in enumerate(zip(kinds, data, strict=True)))


def _build_mapping(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")  # noqa: TRY004 - as above
    return {key: _build(typing.get_args(kind)[1], item, f"{where}.{key}") for key, item in data.items()}


def _choice(kind: Any, data: Any, where: str) -> Any:
    if data not in typing.get_args(kind):
        raise ValueError(f"{where} is {data!r}, not one of {', '.join(map(repr, typing.get_args(kind)))}")
    return data


def _scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(kind, type) and kind not in (object, Any) and type(data) is not kind:
        raise ValueError(f"{where} is {type(data).__name__}, not {kind.__name__}")
    return data


_BUILDERS: dict[Any, Callable[[Any, Any, str], Any]] = {
    typing.Union: _build_optional,
    types.UnionType: _build_optional,
    tuple: _build_tuple,
    dict: _build_mapping,
    Mapping: _build_mapping,
    typing.Literal: _choice,
}


def _build_dataclass(kind: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")  # noqa: TRY004 - as above
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    # A field with a default came after reports were first saved: an older one is read without it.
    missing = [f.name for f in fields if f.name not in data and f.default is dataclasses.MISSING]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    names = [f.name for f in fields if f.name in data]
    return kind(**{name: _build(hints[name], data[name], f"{where}.{name}") for name in names})
