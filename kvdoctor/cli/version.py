"""``kvdoctor version``."""

import importlib.metadata
import platform

import typer

from kvdoctor import __version__
from kvdoctor.cli.output import check_output, write_report


def run() -> None:
    """Print the versions of kvdoctor, Python, and the vLLM installed beside it."""
    check_output(None)
    lines = [f"kvdoctor {__version__}", f"python {platform.python_version()}"]
    lines += [f"{package} {installed(package) or 'not installed'}" for package in ("vllm", "torch", "transformers")]
    write_report("\n".join(lines) + "\n", None)


def show(asked: bool | None) -> None:
    """Print kvdoctor's own version, for ``--version``."""
    if asked:
        check_output(None)
        write_report(f"kvdoctor {__version__}\n", None)
        raise typer.Exit


def installed(package: str) -> str | None:
    """Give the version of an installed package from its metadata, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
