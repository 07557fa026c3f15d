"""A D-Bus client of two verbs, call and wait, over jeepney's messages; nothing waits for ever.

Systemd's managers speak D-Bus on a socket of their own as well, without a bus between: there is
no Hello, and signals come unasked.
"""

from __future__ import annotations

import errno
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sandbox.errors import KernelError

if TYPE_CHECKING:
    from jeepney import Message

_READ_BYTES = 1 << 14
_BUS = "org.freedesktop.DBus"
_BUS_PATH = "/org/freedesktop/DBus"
# What jeepney's parser makes of bytes that are no message is among the last four.
_TROUBLE = (OSError, ValueError, LookupError, TypeError, struct.error)
_MOST_WAITING = 1_000  # signals of other people's units, on a busy host


class BusError(KernelError):
    """The other side cannot be reached, does not answer in time, or refuses."""


class Connection:
    """One conversation; every call shares the time that was given for all of it."""

    def __init__(self, sock: Any, patience_sec: float) -> None:
        from jeepney import Parser

        self._socket = sock
        self._deadline = time.monotonic() + patience_sec
        self._parser = Parser()
        self._serial = 0
        self._signals: deque[Message] = deque(maxlen=_MOST_WAITING)

    @classmethod
    def open(cls, path: Path | str, *, is_bus: bool, patience_sec: float) -> Self:
        """Connect to a socket and say who we are.

        Args:
            path: of the socket.
            is_bus: whether a bus listens there, which wants to be greeted.
            patience_sec: for the whole conversation, not for each call.

        Raises:
            BusError: nobody listens, or we are not let in.
        """
        import socket

        sock = socket.socket(socket.AF_UNIX)
        connection = cls(sock, patience_sec)
        try:
            connection._authenticate(path)
            if is_bus:
                connection.call_bus("Hello")
        except _TROUBLE as exc:
            connection.close()
            raise BusError(f"cannot speak to {path}: {_why(exc)}") from exc
        except BusError:
            connection.close()
            raise
        return connection

    def _authenticate(self, path: Path | str) -> None:
        from jeepney.auth import BEGIN, Authenticator

        self._socket.settimeout(self._left_sec())
        self._socket.connect(str(path))
        for line in (authenticator := Authenticator()):
            self._socket.sendall(line)
            answer = self._socket.recv(_READ_BYTES)
            if not answer:
                raise ConnectionResetError
            authenticator.feed(answer)
        self._socket.sendall(BEGIN)

    def call(
        self,
        target: tuple[str, str, str],
        method: str,
        signature: str = "",
        arguments: tuple[Any, ...] = (),
    ) -> tuple[Any, ...]:
        """Call a method and return what it returns.

        Args:
            target: the name on the bus, the object's path and the interface.
            method: its name.
            signature: the types of the arguments, as D-Bus writes them.
            arguments: in that order.

        Raises:
            BusError: it was refused, or there was no answer in time.
        """
        from jeepney import DBusAddress, MessageType, new_method_call

        name, path, interface = target
        address = DBusAddress(path, bus_name=name, interface=interface)
        message = new_method_call(address, method, signature or None, arguments)
        self._serial += 1
        try:
            self._socket.settimeout(self._left_sec())
            self._socket.sendall(message.serialise(serial=self._serial))
            reply = self._receive_reply(self._serial)
        except _TROUBLE as exc:
            raise BusError(f"{method} was not answered: {_why(exc)}") from exc
        if reply.header.message_type is MessageType.error:
            text = reply.body[0] if reply.body and isinstance(reply.body[0], str) else "no reason"
            raise BusError(f"{method} was refused: {text.rstrip('.')}")
        return tuple(reply.body)

    def call_bus(
        self, method: str, signature: str = "", arguments: tuple[Any, ...] = ()
    ) -> tuple[Any, ...]:
        """Call a method of the bus itself, as `call`."""
        return self.call((_BUS, _BUS_PATH, _BUS), method, signature, arguments)

    def wait_for(self, member: str, is_meant: Callable[[tuple[Any, ...]], bool]) -> tuple[Any, ...]:
        """Return the content of the first signal of that name that is meant, even a past one.

        Raises:
            BusError: none came in time.
        """
        from jeepney import HeaderFields

        try:
            while True:
                message = self._signals.popleft() if self._signals else self._receive()
                if message.header.fields.get(HeaderFields.member) == member:
                    body = tuple(message.body)
                    if is_meant(body):
                        return body
        except _TROUBLE as exc:
            raise BusError(f"{member} was not heard: {_why(exc)}") from exc

    def _receive_reply(self, serial: int) -> Message:
        from jeepney import HeaderFields, MessageType

        while True:
            message = self._receive()
            if message.header.fields.get(HeaderFields.reply_serial) == serial:
                return message
            if message.header.message_type is MessageType.signal:
                self._signals.append(message)

    def _receive(self) -> Message:
        while (message := self._parser.get_next_message()) is None:
            self._socket.settimeout(self._left_sec())
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError
            self._parser.add_data(data)
        return message

    def _left_sec(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def renew(self, patience_sec: float) -> None:
        """Give time for what comes now."""
        self._deadline = time.monotonic() + patience_sec

    def close(self) -> None:
        """End the conversation; again is harmless."""
        with suppress(OSError):
            self._socket.close()


def _why(exc: Exception) -> str:
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, ConnectionResetError):
        return "the connection was closed"
    if isinstance(exc, OSError) and exc.errno is not None:
        return errno.errorcode.get(exc.errno, str(exc))
    return str(exc) or type(exc).__name__
