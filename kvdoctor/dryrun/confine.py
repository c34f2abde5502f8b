"""What a dry launch may not do, whatever vLLM and its dependencies try: reach the network unasked."""

import socket
import sys
from typing import Any

# Binding a port is not among them: vLLM looks for a free one while it is configured for data parallelism.
_NETWORK_EVENTS = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"})


def confine(*, network: bool) -> None:
    """Hold this process to the rule, for the rest of its life.

    FlashInfer asks an artifact server, connectors and KV events open ports, the hub is looked up for files that a directory lacks: each
    gets the error that a machine without network gives. Local sockets stay.
    """
    if network:
        return

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _NETWORK_EVENTS:
            return
        if isinstance(arguments[0], socket.socket) and arguments[0].family == socket.AF_UNIX:
            return
        raise ConnectionRefusedError("a dry launch does not reach the network")

    sys.addaudithook(refuse)
