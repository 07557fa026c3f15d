"""What client and server say to each other: one JSON object a message, descriptors beside it.

client → server  "run": the descriptors of one conversation and of the program's stdio
client → supervisor (the conversation) the RunSpec; later its end, which stops the run
supervisor → client {"result": …} or {"error": …, "hint": …, "exit_code": …}
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from sandbox.records.codec import to_line

_LENGTH = struct.Struct("<Q")


def send_message(connection: socket.socket, plain: dict[str, Any]) -> None:
    """Send one object whole; records in it arrive as their fields."""
    data = to_line(plain).encode()
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_message(connection: socket.socket) -> dict[str, Any] | None:
    """Return the next object, or None when the other side has gone."""
    head = _receive(connection, _LENGTH.size)
    if head is None:
        return None
    data = _receive(connection, _LENGTH.unpack(head)[0])
    if data is None:
        return None
    plain: dict[str, Any] = json.loads(data)
    return plain


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
