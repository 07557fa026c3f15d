"""Netlink, as little as a network of its own takes: messages, attributes, one socket.

pyroute2 knows all of it, but its import takes longer than a whole run of nothing, whatever part is
asked for (docs/explanation/decisions).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence

ROUTE = 0
NETFILTER = 12
"""Protocols: which part of the kernel is spoken to."""

CREATE = 0x400 | 0x200
"""NLM_F_CREATE and NLM_F_EXCL: make it, and refuse if it is there."""
APPEND = 0x400 | 0x800
"""NLM_F_CREATE and NLM_F_APPEND: behind those that are there."""

_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_NESTED = 0x8000
_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")
_TYPE_MASK = 0x3FFF
_RECEIVE_BYTES = 1 << 16


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one attribute, padded as the next one needs it."""
    head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), kind)
    return head + payload + bytes(-len(payload) % 4)


def text(kind: int, value: str) -> bytes:
    """Return an attribute that is a text with its end."""
    return attribute(kind, value.encode() + b"\0")


def nested(kind: int, *attributes: bytes) -> bytes:
    """Return an attribute that holds others."""
    return attribute(kind | _NESTED, b"".join(attributes))


def parse_attributes(data: bytes) -> dict[int, bytes]:
    """Return the payloads by kind; what is cut off is left out."""
    found: dict[int, bytes] = {}
    place = 0
    while place + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, place)
        if length < _ATTRIBUTE.size or place + length > len(data):
            break
        found[kind & _TYPE_MASK] = data[place + _ATTRIBUTE.size : place + length]
        place += length + -length % 4
    return found


def split_messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, sequence number and body of each message; what is cut off is left out."""
    place = 0
    while place + _HEAD.size <= len(data):
        length, kind, _, sequence, _ = _HEAD.unpack_from(data, place)
        if length < _HEAD.size or place + length > len(data):
            break
        yield kind, sequence, data[place + _HEAD.size : place + length]
        place += length + -length % 4


class Netlink:
    """A socket to one part of the kernel, in the network namespace in which it was opened."""

    def __init__(self, protocol: int) -> None:
        """Open it.

        Raises:
            OSError: this kernel has no such part, or a filter forbids it.
        """
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, protocol)
        self._sequence = 0

    def request(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Have one thing done.

        Raises:
            OSError: the kernel refuses.
        """
        self._socket.send(self._message(kind, body, _REQUEST | _ACK | flags))
        self._await(self._sequence)

    def batch(self, messages: Sequence[tuple[int, bytes, int]]) -> None:
        """Have several things done together or not at all; netfilter wants it so.

        Args:
            messages: Type, body and flags; the first and the last mark the batch.

        Raises:
            OSError: the kernel refuses one, and so has done none.
        """
        wanted: list[int] = []
        data = b""
        for place, (kind, body, flags) in enumerate(messages):
            is_mark = place in {0, len(messages) - 1}
            data += self._message(kind, body, _REQUEST | flags | (0 if is_mark else _ACK))
            if not is_mark:
                wanted.append(self._sequence)
        self._socket.send(data)
        for sequence in wanted:
            self._await(sequence)

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        """Yield the body of each message of a list.

        Raises:
            OSError: the kernel refuses.
        """
        self._socket.send(self._message(kind, body, _REQUEST | _DUMP))
        while True:
            for found, sequence, answer in split_messages(self._socket.recv(_RECEIVE_BYTES)):
                if sequence != self._sequence:
                    continue
                if found == _DONE:
                    return
                if found == _ERROR:
                    _check(answer)
                else:
                    yield answer

    def _message(self, kind: int, body: bytes, flags: int) -> bytes:
        self._sequence += 1
        head = _HEAD.pack(_HEAD.size + len(body), kind, flags, self._sequence, 0)
        return head + body + bytes(-len(body) % 4)

    def _await(self, sequence: int) -> None:
        while True:
            for kind, number, body in split_messages(self._socket.recv(_RECEIVE_BYTES)):
                if kind == _ERROR:
                    _check(body)
                    if number == sequence:
                        return

    def close(self) -> None:
        """Close the socket; what belongs to it goes with it."""
        self._socket.close()


def _check(answer: bytes) -> None:
    code = -int(struct.unpack_from("=i", answer)[0])
    if code:
        raise OSError(code, os.strerror(code))
