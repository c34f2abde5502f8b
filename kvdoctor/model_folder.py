"""Many models to check at once: a folder each, with a config and perhaps a ``launch.toml`` that says how to serve it."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdoctor.errors import BadRequest

LAUNCH_FILE = "launch.toml"
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
    """Tell whether ``args`` let a model's code run: by the flag, however short vLLM's parser takes it, or by a file that may hold it."""
    names = [word.partition("=")[0].replace("_", "-") for word in args]
    return any(name == "--config" or (name.startswith("--t") and "--trust-remote-code".startswith(name)) for name in names)


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
    if not path.exists():
        return {}
    try:
        launch = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # a TOML or an encoding error is a ValueError
        raise BadRequest(f"{path} cannot be read: {error}", hint=_HINT) from None
    args = launch.get("args", [])
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise BadRequest(f"{path}: args is no list of words", hint=_HINT)
    for key in ("gpu", "specs"):
        if key in launch and not isinstance(launch[key], str):
            raise BadRequest(f"{path}: {key} is no text", hint=_HINT)
    return launch
