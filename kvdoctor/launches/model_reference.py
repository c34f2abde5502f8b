"""From what the user wrote for MODEL to where its config is, checked before vLLM is started."""

import re
import urllib.parse
from pathlib import Path
from typing import Any

from kvdoctor.errors import BadRequest
from kvdoctor.home import expanded
from kvdoctor.json_file import read_json_object
from kvdoctor.launches.request import ModelReference

# The hub's own rule for a repository's name.
_HUB_ID = re.compile(r"(?=[^/]{1,96}/[^/]{1,96}$)[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*(?<![.-])", re.ASCII)
_HUB_PAGE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^?#]*)(?:[?#].*)?", re.ASCII)
_NO_MODELS = ("collections", "datasets", "docs", "models", "organizations", "papers", "spaces")
_REVISION = re.compile(r"[A-Za-z0-9_][\w./-]{0,254}", re.ASCII)
_MODEL_HINT = "Give a hub id (org/name), a directory with a config.json, or the path of a config.json."


def _pipe(text: str) -> Path | None:
    try:
        path = expanded(text)
        return path if path.is_fifo() else None
    except (OSError, ValueError):  # a name that the file system cannot hold
        return None


def find_model(text: str) -> ModelReference:
    """Classify ``text`` and check the config it leads to. A file of another name than ``config.json``, and a pipe, are read here."""
    if (pipe := _pipe(text)) is not None:
        return ModelReference(text=text, kind="file", path=None, revision=None, config=_check_config(pipe))
    if (page := _HUB_PAGE.fullmatch(text)) is not None:
        return _hub_reference(_id_of_page(text, page[1]))
    path = expanded(text) if text else Path()
    try:
        exists = bool(text) and path.exists()
    except (OSError, ValueError):  # a name that the file system cannot hold
        exists = False
    if exists and path.is_dir():
        _check_directory(path)
        return ModelReference(text=text, kind="directory", path=str(path.resolve()), revision=None)
    if exists:
        config = _check_config(path)
        if path.name == "config.json":
            return ModelReference(text=text, kind="file", path=str(path.resolve().parent), revision=None)
        return ModelReference(text=text, kind="file", path=None, revision=None, config=config)
    return _hub_reference(text)


def _id_of_page(text: str, path: str) -> str:
    """Read the address of a model's page, or of a file on it, as ``org/name`` or ``org/name@revision``."""
    owner, name, view, *rest = [*(urllib.parse.unquote(part) for part in path.rstrip("/").split("/")), "", ""]
    rest = [part for part in rest if part]
    if not name or owner in _NO_MODELS:
        raise BadRequest(f"{text} is no model's page", hint="Give https://huggingface.co/org/name, or org/name alone.")
    if view not in ("tree", "blob", "resolve", "raw", "commit") or not rest:
        return f"{owner}/{name}"
    # refs/pr/3 is one revision; its slashes are written as they are where they need no escaping.
    length = 3 if rest[0] == "refs" and len(rest) > 2 else 1  # noqa: PLR2004 - the parts of such a name
    return f"{owner}/{name}@{'/'.join(rest[:length])}"


def _hub_reference(text: str) -> ModelReference:
    name, at, revision = text.partition("@")
    if text.startswith((".", "/", "~")) or text.endswith((".json", "/")) or name.count("/") > 1:
        raise BadRequest(f"model {text} does not exist", hint=_MODEL_HINT)
    if not _HUB_ID.fullmatch(name) or "--" in name or ".." in name:
        raise BadRequest(f"model {text!r} is no hub id, and no file or directory of that name exists", hint=_MODEL_HINT)
    if at and not _REVISION.fullmatch(revision):
        raise BadRequest(f"model {text!r} has no usable revision after the @", hint="Give a branch, a tag or a commit: org/name@main.")
    return ModelReference(text=text, kind="hub", path=None, revision=revision or None)


def _check_directory(directory: Path) -> None:
    for name in ("config.json", "params.json"):
        config = directory / name
        if config.is_fifo():
            raise BadRequest(f"{config} is a pipe, and nothing may ever come out of it", hint=_MODEL_HINT)
        if config.exists() or config.is_symlink():
            _check_config(config)
            return
    try:
        entries = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise BadRequest(f"{directory} cannot be read: {error.strerror}", hint="Check the path and its permissions.") from None
    if not entries:
        raise BadRequest(f"{directory} is an empty directory", hint=_MODEL_HINT)
    inside = next((name for name in entries if (directory / name / "config.json").is_file()), None)
    hint = f"Did you mean {directory / inside}?" if inside else _MODEL_HINT
    raise BadRequest(f"{directory} has no config.json", hint=hint)


def _check_config(path: Path) -> dict[str, Any]:
    config = read_json_object(path, what="a model's config.json")
    if path.name != "params.json" and not _says_model_type(config):
        raise BadRequest(f"{path} has no model_type, so vLLM cannot tell which model it is", hint="Give the model's own config.json.")
    return config


def _says_model_type(config: dict[str, Any]) -> bool:
    """Tell whether vLLM can find the model's type: from its own key, or from one of the two that stand in for it."""
    if isinstance(config.get("model_type"), str) and config["model_type"]:
        return True
    # A speculator's config is read by its own key; a model that brings its code names its config class in auto_map.
    return bool(config.get("speculators_config")) or bool(config.get("auto_map"))
