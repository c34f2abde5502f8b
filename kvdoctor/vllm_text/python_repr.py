"""A value that vLLM printed as Python prints it, read without evaluating anything.

``non-default args: {...}`` holds dictionaries, and in them enumerations (``<CompilationMode.VLLM_COMPILE: 3>``) and config objects
(``KVTransferConfig(kv_connector='...')``), which ``ast.literal_eval`` would refuse along with all that stands beside them.
"""

import ast
import re
import warnings
from typing import Any

MAX_CHARACTERS = 50_000
MAX_DEPTH = 30
_STRING_OR_ENUM = re.compile(
    r"(?P<string>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")|<(?P<name>[A-Za-z_][\w.]{0,200})(?:: (?P<value>[^<>\n]{1,200}))?>"
    r"|<[^<>\n]{1,300}>"
)
_JSON_NAMES = {"null": None, "true": True, "false": False}


class NotReadable(ValueError):
    """The text is no value that this module reads."""


class _Unread:
    """Stands for a part that is not plain data: an object, a function."""

    def __repr__(self) -> str:
        return "UNREAD"


UNREAD = _Unread()


def read_repr(text: str) -> Any:
    """Read a value; ``UNREAD`` stands where a part of it is no plain data.

    Raises:
        NotReadable: the text is cut off, too long, too deep, or no Python value.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotReadable("it is too long")
    plain = _STRING_OR_ENUM.sub(_plain_enum, text)
    depth = 0
    for character in re.sub(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"", "", plain):
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_DEPTH:
            raise NotReadable("it is nested too deeply")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's opinion on an escape in a string is not for the user
            tree = ast.parse(plain.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotReadable("it is no Python value") from None
    return _value(tree.body)


def _plain_enum(found: re.Match[str]) -> str:
    """Put an enumeration's value where it is a number or a string, its member's name where it is not."""
    if found["string"] is not None:
        return found["string"]
    value = found["value"] or ""
    if re.fullmatch(r"-?\d{1,9}|'[\w.+-]{0,100}'", value, re.ASCII):
        return value
    name = found["name"] or ""
    return repr(name.rpartition(".")[2]) if "." in name else "UNREAD"


def _value(node: ast.expr) -> Any:  # noqa: PLR0911 - a kind of node a line
    match node:
        case ast.Constant(value=value):
            return value if value is None or isinstance(value, (bool, int, float, str)) else UNREAD
        case ast.Dict(keys=keys, values=values):
            return {str(_value(key)): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Call(func=ast.Name(), args=[], keywords=fields) if all(field.arg for field in fields):
            return {str(field.arg): _value(field.value) for field in fields}
        case ast.Attribute(value=ast.Name(), attr=name):  # torch.bfloat16
            return name
        case ast.Name(id=name):
            return _JSON_NAMES.get(name, UNREAD)
    return UNREAD
