"""What a dry launch may not do. The rule holds for the life of a process, so each test has one of its own."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROLOGUE = """
import json, socket, sys
from kvdoctor.dryrun.confine import confine

def outcome(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"
"""
REFUSED = "ConnectionRefusedError: a dry launch does not reach the network"


def outcomes(body: str) -> dict[str, str]:
    command = [sys.executable, "-c", PROLOGUE + textwrap.dedent(body)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    seen: dict[str, str] = json.loads(result.stdout)
    return seen


@pytest.mark.parametrize(("network", "expected"), [(False, REFUSED), (True, "done")])
def test_a_connection_is_made_only_where_the_network_is_allowed(*, network: bool, expected: str) -> None:
    seen = outcomes(f"""
        server = socket.create_server(("127.0.0.1", 0))
        confine(network={network})
        address = server.getsockname()
        print(json.dumps({{
            "connect": outcome(lambda: socket.create_connection(address).close()),
            "connect_ex": outcome(lambda: socket.socket().connect_ex(address)),
            "sendto": outcome(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", address)),
            "getaddrinfo": outcome(lambda: socket.getaddrinfo("localhost", 80)),
            "gethostbyname": outcome(lambda: socket.gethostbyname("localhost")),
        }}))
    """)
    assert seen == dict.fromkeys(["connect", "connect_ex", "sendto", "getaddrinfo", "gethostbyname"], expected)


def test_a_library_that_catches_the_error_gets_it_as_one_of_the_network() -> None:
    seen = outcomes("""
        import urllib.request
        confine(network=False)
        print(json.dumps({"urlopen": outcome(lambda: urllib.request.urlopen("http://127.0.0.1:9/"))}))
    """)
    assert seen == {"urlopen": "URLError: <urlopen error a dry launch does not reach the network>"}


def test_local_sockets_and_free_ports_stay() -> None:
    seen = outcomes("""
        import tempfile
        folder = tempfile.TemporaryDirectory()
        server = socket.socket(socket.AF_UNIX)
        server.bind(folder.name + "/socket")
        server.listen()
        one, other = socket.socketpair()
        confine(network=False)
        print(json.dumps({
            "unix": outcome(lambda: socket.socket(socket.AF_UNIX).connect(folder.name + "/socket")),
            "pair": outcome(lambda: one.send(b"x")),
            "bind": outcome(lambda: socket.socket().bind(("127.0.0.1", 0))),
        }))
    """)
    assert seen == {"unix": "done", "pair": "done", "bind": "done"}
