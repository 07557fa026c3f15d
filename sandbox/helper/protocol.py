"""What client and server say to each other: one pickled object a message, descriptors beside it.

client → server  "run": the descriptors of one conversation and of the program's stdio
client → supervisor (the conversation) the RunSpec; later its end, which stops the run
supervisor → client {"result": …} or {"error": …, "hint": …, "exit_code": …}

Both are one program in two processes, joined by a socket that no third one has: so the objects
need not be taken apart and put together again, whose first time takes 8 ms.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")


def send_message(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one object whole."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(connection: socket.socket) -> dict[str, Any] | None:
    """Return the next object, or None when the other side has gone."""
    head = _receive(connection, _LENGTH.size)
    if head is None:
        return None
    data = _receive(connection, _LENGTH.unpack(head)[0])
    if data is None:
        return None
    message: dict[str, Any] = pickle.loads(data)  # noqa: S301 - from our own other half
    return message


def _receive(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(min(size - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
