"""Secrets in command lines, configurations and what vLLM writes: found by name, and shown as ``***``.

A name is judged by its whole words, so that ``--hf-token`` is one and ``--max-num-batched-tokens`` is none. vLLM is given the values as
they are; what a report, an error or a log shows is not.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HIDDEN = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Words that make a name a secret's wherever they stand, and those that do only at its end: `key_dim` and `token_id` are none.
_ANYWHERE = frozenset({"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials"})
_AT_THE_END = frozenset({"key", "token", "authorization", "signature", "bearer"})
_COMPOUND = frozenset({"apikey", "apikeys", "apitoken", "authtoken", "accesstoken", "hftoken", "accesskey", "secretkey", "privatekey"})
# `api_keys`, `auth_tokens`; without such a word in front the plural counts tokens, or names keys of a dictionary.
_PLURAL = frozenset({"keys", "tokens"})
_OF_ACCESS = frozenset({"api", "auth", "access", "private", "bearer", "hf"})
# What stands before `token` or `key` in a model's config and in vLLM's settings, where it is a word of the text or of a computation.
_OF_TEXT = frozenset({
    "per", "max", "min", "num", "pad", "padding", "eos", "bos", "unk", "mask", "sep", "cls", "image", "video", "audio", "vision", "start",
    "end", "begin", "stop", "special", "think", "mm", "prompt", "next", "last", "first", "decoder", "extra", "draft", "placeholder",
    "context", "boi", "eoi", "boa", "eoa", "img", "sort", "query", "cache", "hash", "primary", "public", "head", "dict", "state", "by",
})  # fmt: skip
# vLLM's own flags of that kind: its parser takes them shortened.
_FLAGS = ("api-key", "hf-token", "ssl-keyfile-password")
_SHORTEST = {"api-key": "api-k", "hf-token": "hf-t", "ssl-keyfile-password": "ssl-keyfile-"}

_USERINFO = re.compile(r"(?<=://)[^/\s@'\"<>?#]+@")
_NAME = r"[A-Za-z_][\w.-]{0,80}"  # no longer: what is searched may be megabytes of one word
_VALUE = r"\[[^\]\n]*\]|'[^'\n]*'|\"[^\"\n]*\"|[^\s,;&'\")\]}]+"
# `--name value`, `--name=value`, `NAME=value`, `'name': value`: how command lines, vLLM's log and its errors spell a setting.
_SETTING = re.compile(
    rf"(?P<name>--{_NAME})(?P<gap>=| +)(?P<value>{_VALUE})|"
    rf"(?<![\w.-])(?P<name2>['\"]?{_NAME}['\"]?)(?P<gap2>=|(?<=['\"]):\s*)(?P<value2>{_VALUE})"
)
# What looks like a setting's value and hides nothing.
_NOTHING = frozenset(
    {"None", "null", "True", "False", "true", "false", "''", '""', "[]", HIDDEN, f"'{HIDDEN}'", f'"{HIDDEN}"', f"['{HIDDEN}']"}
)
# A value as plain and short as a word or a number is taken for the secret only where a value stands, lest `vllm` vanish from each line.
_PLAIN = re.compile(r"[a-z]{1,11}|[A-Z]{1,11}|[A-Za-z][a-z]{1,11}|[0-9.]{1,7}|.{1,3}", re.DOTALL)


def is_secret(name: str) -> bool:
    """Tell whether the flag, variable or key of this name holds a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    return (
        not _ANYWHERE.isdisjoint(words)
        or words[-1] in _COMPOUND
        or (words[-1] in _AT_THE_END and before not in _OF_TEXT)
        or (words[-1] in _PLURAL and before in _OF_ACCESS)
    )


def without_secrets(text: str) -> str:
    """Hide in free text what is written as a setting with a secret's name, and the credentials of addresses."""
    return _SETTING.sub(_hide_setting, _USERINFO.sub(f"{HIDDEN}@", text))


def hide_arguments(words: Iterable[str]) -> tuple[str, ...]:
    """Hide the secrets of a command line, word by word."""
    hidden: list[str] = []
    secret_flag = False
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            secret_flag = _is_secret_flag(flag)
            hidden.append(f"{flag}={HIDDEN if secret_flag else _hide_value(value)}" if equals else flag)
            secret_flag = secret_flag and not equals
        elif word.startswith("-") and not _is_number(word):
            secret_flag = False
            hidden.append(_hide_value(word))
        else:
            hidden.append(HIDDEN if secret_flag else _hide_value(word))
    return tuple(hidden)


def hide_setting(name: str, value: str) -> str:
    """Hide the value of one flag or variable, or the secrets inside it."""
    return HIDDEN if value and _is_secret_flag(name) else _hide_value(value)


def hide_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Hide the secrets among variables."""
    return {name: hide_setting(name, value) for name, value in environment.items()}


@dataclass(frozen=True)
class Curtain:
    """Hides in free text the given secrets wherever they stand, and what :func:`without_secrets` finds."""

    values: frozenset[str] = frozenset()

    def __call__(self, text: str) -> str:
        """Hide."""
        for value in sorted(self.values, key=len, reverse=True):
            if value in text:
                text = _pattern(value).sub(HIDDEN, text)
        return without_secrets(text)

    def __or__(self, other: "Curtain") -> "Curtain":
        """Hide what either hides."""
        return Curtain(self.values | other.values)


def curtain_for(arguments: Iterable[str], environment: Mapping[str, str]) -> Curtain:
    """Make the curtain before the secrets of a launch."""
    words = list(arguments)
    found: set[str] = set()
    secret_flag = False
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if flag:
            secret_flag = _is_secret_flag(flag)
        elif word.startswith("-") and not _is_number(word):
            secret_flag = False
        if flag and not equals:
            continue
        found |= {value} if secret_flag else set(_secrets_in(value))
    for name, value in environment.items():
        found |= {value} if _is_secret_flag(name) else set(_secrets_in(value))
    spelled = {json.dumps(value)[1:-1] for value in found} | {repr(value)[1:-1] for value in found}
    return Curtain(frozenset(found | spelled) - {"", HIDDEN})


def _is_secret_flag(flag: str) -> bool:
    name = flag.lstrip("-").replace("_", "-").rstrip("+")
    shortened = any(full.startswith(name) and name.startswith(_SHORTEST[full]) for full in _FLAGS)
    return shortened or is_secret(name)


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-[0-9.]+", word) is not None


def _hide_value(value: str) -> str:
    data = _parsed(value)
    if data is None:
        return without_secrets(value)
    hidden = _hide_data(data)
    return value if hidden == data else json.dumps(hidden, ensure_ascii=False)


def _parsed(value: str) -> Any:
    """Read a value that is a JSON object or list; ``None`` for any other."""
    if not value.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _hide_data(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: HIDDEN if _hides(key, item) else _hide_data(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_hide_data(item) for item in data]
    return without_secrets(data) if isinstance(data, str) else data


def _hides(key: str, item: Any) -> bool:
    return is_secret(key) and item is not None and not isinstance(item, bool) and item not in ("", {}, [])


def _secrets_in(value: str) -> Iterator[str]:
    data = _parsed(value)
    if data is not None:
        yield from _secrets_of(data)
        return
    for found in _USERINFO.findall(value):
        _, colon, password = found[:-1].partition(":")
        yield password if colon else found[:-1]


def _secrets_of(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, item in data.items():
            yield from _leaves(item) if _hides(key, item) else _secrets_of(item)
    elif isinstance(data, list):
        for item in data:
            yield from _secrets_of(item)
    elif isinstance(data, str):
        yield from _secrets_in(data) if not data.lstrip().startswith(("{", "[")) else ()


def _leaves(data: Any) -> Iterator[str]:
    if isinstance(data, (dict, list)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _leaves(item)
    elif data is not None and not isinstance(data, bool):
        yield str(data)


def _pattern(value: str) -> re.Pattern[str]:
    quoted = re.escape(value)
    if _PLAIN.fullmatch(value):
        return re.compile(rf"(?<=['\"=]){quoted}(?=['\"\s,;&)\]}}]|$)")
    return re.compile(quoted)


def _hide_setting(found: re.Match[str]) -> str:
    name, gap, value = (found["name"], found["gap"], found["value"]) if found["name"] else (found["name2"], found["gap2"], found["value2"])
    if value in _NOTHING or not _is_secret_flag(name.strip("'\"")):
        # What follows may be a setting itself: --config '{"password": "x"}', or KEY in `--flag KEY=value`.
        return name + gap + _SETTING.sub(_hide_setting, value) if value != found[0] else found[0]
    quote = value[0] if value[0] in "'\"" else ""
    if value[0] == "[":
        return f"{name}{gap}['{HIDDEN}']"
    return f"{name}{gap}{quote}{HIDDEN}{quote}"
