"""Many models to check at once: a folder each, with a config and perhaps a ``launch.toml`` that says how to serve it."""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdoctor.errors import BadRequest
from kvdoctor.home import expanded
from kvdoctor.text_file import read_text

LAUNCH_FILE = "launch.toml"
# vLLM's options, as far as it may import a module, or run a file, that their value names. Its parser takes each shortened too.
_IMPORTING = (
    "--config", "--distributed-executor-backend", "--io-processor-plugin", "--log-config-file", "--logits-processors", "--middleware",
    "--reasoning-parser-plugin", "--scheduler-cls", "--tool-parser-plugin", "--trust-remote-code", "--worker-cls", "--worker-extension-cls",
)  # fmt: skip
_BUILT_IN_EXECUTORS = ("ray", "mp", "uni", "external_launcher")
# Keys of vLLM's JSON arguments of which that is true as well, by how they end.
_IMPORTING_KEY = re.compile(r"(?:module_path|_cls|_class|qualname|_plugin|trust_remote_code|auto_map|code_revision)$")
_DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_]\w*)?")
_HINT = "It may hold gpu (a name), args (a list of words for vLLM), specs (a file of layer specs) and draft_for (a drafter's target)."


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """One model, or layer specs, with the way to serve it. ``broken`` says what is wrong with its ``launch.toml``."""

    name: str
    model: str | None
    specs: Path | None
    gpu: str | None
    args: tuple[str, ...]
    broken: BadRequest | None


def find_model_folders(directory: Path, *, option: str = "--all") -> tuple[ModelFolder, ...]:
    """List the models in ``directory`` by name. Drafters of other models are left out: they are not served alone.

    ``option`` is what the user gave the directory by.

    Raises:
        BadRequest: there is no such directory, or no model in it.

    """
    if not directory.is_dir():
        raise BadRequest(f"{option} {directory} is no directory", hint="Give a directory that holds one folder for each model.")
    try:
        entries = sorted(entry for entry in directory.iterdir() if entry.is_dir())
    except OSError as error:
        raise BadRequest(f"{option} {directory} cannot be read: {error.strerror}", hint="Check the path and its permissions.") from None
    folders = [folder for entry in entries if (folder := _read(entry)) is not None]
    if not folders:
        raise BadRequest(f"{option} {directory} has no model in it", hint="Each model is a folder of its own, with a config.json.")
    return tuple(folders)


def asks_for_code(args: Sequence[str]) -> bool:
    """Tell whether ``args`` may let code run that is not vLLM's: a model's own, or a module or file that they name to be imported."""
    return any(_may_import(word, after) for word, after in zip(args, [*args[1:], ""], strict=False))


def untaken_keys(model: str, *, gpu: str, args: Sequence[str]) -> tuple[str, ...]:
    """Give the keys of the ``launch.toml`` beside ``model`` (a directory, or a config in one) whose values a launch has not.

    Of one that cannot be read that is all.
    """
    try:
        given = expanded(model)
        path = (given if given.is_dir() else given.parent) / LAUNCH_FILE
        if not given.exists() or not path.exists():
            return ()
    except (OSError, ValueError):  # a name that the file system cannot hold
        return ()
    try:
        launch = _read_launch(path)
    except BadRequest:
        return ("all of it",)
    taken = {"gpu": launch.get("gpu", gpu) == gpu, "args": set(launch.get("args", ())) <= set(args)}
    return tuple(key for key, same in taken.items() if not same)


def _may_import(word: str, after: str) -> bool:
    head, equals, value = word.partition("=")
    if not word.startswith("-"):
        return any(_IMPORTING_KEY.search(key) or (isinstance(text, str) and _DOTTED_NAME.fullmatch(text)) for key, text in _leaves(word))
    # vLLM writes a key of a JSON argument behind a dot: --kv-transfer-config.kv_connector_module_path.
    option, dot, key = head.replace("_", "-").partition(".")
    value = value if equals else after
    if dot:
        return bool(_IMPORTING_KEY.search(key.replace("-", "_")) or _DOTTED_NAME.fullmatch(value))
    if option.startswith("--d") and "--distributed-executor-backend".startswith(option):
        return option != "--d" and value not in _BUILT_IN_EXECUTORS
    if option.startswith("--") and option != "--" and any(name.startswith(option) for name in _IMPORTING):
        return True
    return bool(equals) and not value.startswith("-") and _may_import(value, "")


def _leaves(text: str) -> Iterator[tuple[str, object]]:
    """Give each key with its value from a JSON object, at any depth; from any other text nothing."""
    try:
        waiting = [("", json.loads(text))] if text.lstrip().startswith(("{", "[")) else []
    except (ValueError, RecursionError):
        waiting = [("module_path", text)]  # vLLM's parser may see more in it
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        yield key, value


def _read(entry: Path) -> ModelFolder | None:
    try:
        launch = _read_launch(entry / LAUNCH_FILE)
    except BadRequest as error:
        return ModelFolder(name=entry.name, model=str(entry), specs=None, gpu=None, args=(), broken=error)
    specs = launch.get("specs")
    has_config = any((entry / name).exists() for name in ("config.json", "params.json"))
    if "draft_for" in launch or (specs is None and not has_config):
        return None
    return ModelFolder(
        name=entry.name,
        model=str(entry) if specs is None else None,
        specs=None if specs is None else entry / specs,
        gpu=launch.get("gpu"),
        args=tuple(launch.get("args", ())),
        broken=None,
    )


def _read_launch(path: Path) -> dict[str, Any]:
    try:
        if not path.exists():
            return {}
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}", hint=_HINT) from None
    try:
        launch = tomllib.loads(read_text(path, what="a TOML file that says how to serve the model", pipes=False))
    except RecursionError:
        raise BadRequest(f"{path} is no TOML file that can be read: it is nested too deeply", hint=_HINT) from None
    except ValueError as error:
        raise BadRequest(f"{path} is no TOML file: {error}", hint=_HINT) from None
    args = launch.get("args", [])
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise BadRequest(f"{path}: args is no list of words", hint=_HINT)
    for key in ("gpu", "specs"):
        if key in launch and not isinstance(launch[key], str):
            raise BadRequest(f"{path}: {key} is no text", hint=_HINT)
    return launch
