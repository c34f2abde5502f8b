"""A package index of our own, on disk or served on the loopback interface, which can be made to misbehave."""

import hashlib
import io
import os
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ELF = b"\x7fELF" + bytes(64)
VLLM = "9.9.9"


def wheel(name: str = "vllm", version: str = VLLM, *, requires: tuple[str, ...] = (), files: dict[str, bytes] | None = None) -> bytes:
    """Make a wheel: the package with its version, what else is given, and metadata."""
    metadata = "".join(
        ["Metadata-Version: 2.1\n", f"Name: {name}\nVersion: {version}\n", *(f"Requires-Dist: {line}\n" for line in requires)]
    )
    package, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    members = {
        f"{package}/__init__.py": f"__version__ = {version!r}\n".encode(),
        **(files or {}),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    return archive(members)


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def with_members(content: bytes, *members: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    """Add members to a wheel, however they are called."""
    buffer = io.BytesIO(content)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore")  # zipfile's own warning of a name that is there twice
        for member, data in members:
            file.writestr(member, data)
    return buffer.getvalue()


def vllm_wheel(version: str = VLLM, *, requires: tuple[str, ...] = (), padding: int = 0) -> bytes:
    """A small wheel in the form of vLLM's: a library, a program, data, and ``padding`` bytes that do not compress."""
    files = {
        "vllm/_C.abi3.so": ELF,
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": ELF,
        "vllm/vllm-rs": ELF,
        "vllm/v1/core.py": b"BLOCK = 16\n",
        f"vllm-{version}.data/scripts/vllm": b"#!python\n",
    }
    return wheel(version=version, requires=requires, files=files | ({"vllm/padding.bin": os.urandom(padding)} if padding else {}))


def vllm_file(version: str = VLLM, machine: str = "x86_64") -> str:
    return f"vllm-{version}-cp38-abi3-manylinux_2_31_{machine}.whl"


class PackageIndex:
    """A folder in the layout of a simple index. ``cut`` and ``slow`` change how it is served: half of each wheel, or a trickle."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cut = False
        self.slow = False
        self.requests: list[str] = []
        (root / "simple").mkdir(parents=True)
        (root / "files").mkdir()

    def add(self, content: bytes, file: str, *, sha256: str | None = "true") -> str:
        """Offer a wheel, with its sha256, with another one, or with none."""
        digest = hashlib.sha256(content).hexdigest()
        (self.root / "files" / file).write_bytes(content)
        page = self.root / "simple" / file.partition("-")[0].replace("_", "-") / "index.html"
        page.parent.mkdir(exist_ok=True)
        fragment = "" if sha256 is None else f"#sha256={digest if sha256 == 'true' else sha256}"
        before = page.read_text() if page.exists() else ""
        page.write_text(f'{before}<a href="../../files/{file}{fragment}">{file}</a>\n')
        return digest

    @property
    def url(self) -> str:
        return f"{self.root.as_uri()}/simple"

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the index over HTTP; give its address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requests.append(self.path)
            path = index.root / self.path.strip("/")
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file():
                self.send_error(404)
                return
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if path.suffix == ".html" else "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if path.suffix == ".whl" and index.cut:
                self.wfile.write(content[: len(content) // 2])
            elif path.suffix == ".whl" and index.slow:
                self._trickle(content)
            else:
                self.wfile.write(content)

        def _trickle(self, content: bytes) -> None:
            for start in range(0, len(content), 2**10):
                try:
                    self.wfile.write(content[start : start + 2**10])
                except OSError:
                    return  # the client is gone, which is what the test waits for
                time.sleep(0.01)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    return Handler
