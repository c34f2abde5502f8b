"""What a release asks for in its wheel's metadata, against what is installed."""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Packages whose version can change a plan, or make one impossible. The rest serves requests, and is never reached.
MATTERS = frozenset({
    "transformers", "tokenizers", "huggingface-hub", "torch", "flashinfer-python", "compressed-tensors", "mistral-common", "tilelang",
})  # fmt: skip

Installed = Callable[[str], str | None]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A package that is not as the release asks for. ``installed`` is ``None`` when it is absent."""

    name: str
    installed: str | None
    wanted: str

    @property
    def matters(self) -> bool:
        """Whether it can change a plan."""
        return self.name in MATTERS

    def __str__(self) -> str:
        """Say it in a sentence without a period."""
        have = f"{self.name} {self.installed} is installed" if self.installed else f"{self.name} is not installed"
        return f"{have}, this release asks for {self.wanted or 'it'}"


class Requirements:
    """Requires-Dist lines, as they apply to this interpreter.

    ``packaging`` reads them: vLLM depends on it, so that it is there wherever an engine can run. ``ImportError`` where it is not.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        requirement = importlib.import_module("packaging.requirements")
        self._canonical: Any = importlib.import_module("packaging.utils").canonicalize_name
        self._wanted: dict[str, Any] = {}
        for line in lines:
            try:
                read = requirement.Requirement(line)
                applies = read.marker is None or read.marker.evaluate({"extra": ""})
            except ValueError:
                continue  # written in a way that this packaging does not know
            if applies:
                name = self._canonical(read.name)
                self._wanted[name] = self._wanted[name] & read.specifier if name in self._wanted else read.specifier

    def differences(self, installed: Installed) -> tuple[Difference, ...]:
        """Compare with what is installed; those that matter come first."""
        found = [
            Difference(name=name, installed=version, wanted=str(wanted))
            for name, wanted in self._wanted.items()
            for version in [installed(name)]
            if version is None or not wanted.contains(version, prereleases=True)
        ]
        return tuple(sorted(found, key=lambda difference: (not difference.matters, difference.name)))


def installed_version(name: str) -> str | None:
    """Give the version of a package installed beside kvdoctor."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_with(beside: Mapping[str, str]) -> Installed:
    """Give what a worker finds where the packages ``beside`` an engine come first."""
    return lambda name: beside.get(name) or installed_version(name)
