"""The D-Bus client against a peer that plays its part in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jeepney import (
    DBusAddress,
    HeaderFields,
    Message,
    MessageType,
    Parser,
    new_error,
    new_method_return,
    new_signal,
)

from sandbox.kernel.bus import BusError, Connection

MANAGER = ("org.example.Manager", "/org/example", "org.example.Manager")
PATIENCE_SEC = 5.0

Answer = Callable[[Message], list[Message] | None]


class Peer:
    """A listener that lets one client in and answers as it was told; None hangs up."""

    def __init__(self, path: Path, answer: Answer, *, word: bytes = b"OK 1234\r\n") -> None:
        self.path = path
        self.calls: list[Message] = []
        self._answer = answer
        self._word = word
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(PATIENCE_SEC)
            client.recv(1024)
            client.sendall(self._word)
            parser, serial, begun = Parser(), 0, b""
            while b"BEGIN\r\n" not in begun:
                data = client.recv(1)
                if not data:
                    return
                begun += data
            while data := client.recv(4096):
                parser.add_data(data)
                while (message := parser.get_next_message()) is not None:
                    self.calls.append(message)
                    answers = self._answer(message)
                    if answers is None:
                        return
                    for one in answers:
                        serial += 1
                        client.sendall(one.serialise(serial=serial))

    def end(self) -> None:
        self._listener.close()
        self._thread.join(PATIENCE_SEC)
        assert not self._thread.is_alive()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    peers: list[Peer] = []

    def start(answer: Answer, **options: bytes) -> Path:
        peers.append(Peer(tmp_path / "socket", answer, **options))
        return peers[-1].path

    yield start
    for one in peers:
        one.end()


def signal(member: str, *body: str) -> Message:
    emitter = DBusAddress(MANAGER[1], interface=MANAGER[2])
    return new_signal(emitter, member, "s" * len(body), body)


def opened(path: Path, *, is_bus: bool = False, patience_sec: float = PATIENCE_SEC) -> Connection:
    return Connection.open(path, is_bus=is_bus, patience_sec=patience_sec)


def test_a_call_returns_what_the_other_side_returns(peer: Callable[..., Path]) -> None:
    def answer(message: Message) -> list[Message]:
        assert message.header.fields[HeaderFields.member] == "Double"
        return [new_method_return(message, "u", (2 * message.body[0],))]

    connection = opened(peer(answer))

    assert connection.call(MANAGER, "Double", "u", (21,)) == (42,)
    connection.close()


def test_on_a_bus_we_say_hello_first(peer: Callable[..., Path]) -> None:
    names = []

    def answer(message: Message) -> list[Message]:
        names.append(message.header.fields[HeaderFields.member])
        return [new_method_return(message, "s", (":1.7",))]

    opened(peer(answer), is_bus=True).close()

    assert names == ["Hello"]


def test_a_refusal_is_an_error_with_the_other_sides_words(peer: Callable[..., Path]) -> None:
    def answer(message: Message) -> list[Message]:
        return [new_error(message, "org.example.No", "s", ("Unit x.scope already exists.",))]

    connection = opened(peer(answer))

    with pytest.raises(BusError, match=r"^Start was refused: Unit x\.scope already exists$"):
        connection.call(MANAGER, "Start")
    connection.close()


def test_signals_before_and_after_a_reply_are_kept_in_order(peer: Callable[..., Path]) -> None:
    def answer(message: Message) -> list[Message]:
        return [
            signal("JobRemoved", "another", "done"),
            signal("UnitNew", "ours"),
            signal("JobRemoved", "ours", "failed"),
            new_method_return(message),
            signal("JobRemoved", "ours", "done"),
        ]

    connection = opened(peer(answer))
    connection.call(MANAGER, "Start")

    assert connection.wait_for("JobRemoved", lambda body: body[0] == "ours") == ("ours", "failed")
    assert connection.wait_for("JobRemoved", lambda body: body[0] == "ours") == ("ours", "done")
    connection.close()


def test_a_reply_to_somebody_else_is_not_taken_for_ours(peer: Callable[..., Path]) -> None:
    def answer(message: Message) -> list[Message]:
        stale = new_method_return(message, "u", (1,))
        stale.header.fields[HeaderFields.reply_serial] = 999
        return [stale, new_method_return(message, "u", (2,))]

    connection = opened(peer(answer))

    assert connection.call(MANAGER, "Ask") == (2,)
    connection.close()


@pytest.mark.parametrize(
    "wait",
    [lambda c: c.call(MANAGER, "Ask"), lambda c: c.wait_for("JobRemoved", lambda _: True)],
    ids=["call", "signal"],
)
def test_nobody_is_waited_for_for_ever(
    wait: Callable[[Connection], object], peer: Callable[..., Path]
) -> None:
    connection = opened(peer(lambda _: []), patience_sec=0.2)
    started = time.monotonic()

    with pytest.raises(BusError, match="no answer in time"):
        wait(connection)
    assert time.monotonic() - started < PATIENCE_SEC / 2
    connection.close()


def test_signals_of_others_do_not_make_the_wait_longer(peer: Callable[..., Path]) -> None:
    def answer(message: Message) -> list[Message]:
        return [new_method_return(message), *(signal("JobRemoved", "another") for _ in range(50))]

    connection = opened(peer(answer), patience_sec=0.5)
    connection.call(MANAGER, "Start")

    with pytest.raises(BusError, match="no answer in time"):
        connection.wait_for("JobRemoved", lambda body: body[0] == "ours")
    connection.close()


def test_time_can_be_given_anew(peer: Callable[..., Path]) -> None:
    def answer(message: Message) -> list[Message]:
        time.sleep(0.3)
        return [new_method_return(message)]

    connection = opened(peer(answer), patience_sec=0.1)
    connection.renew(PATIENCE_SEC)

    assert connection.call(MANAGER, "Ask") == ()
    connection.close()


def test_the_other_side_may_hang_up(peer: Callable[..., Path]) -> None:
    connection = opened(peer(lambda _: None))

    with pytest.raises(BusError, match="Ask was not answered: the connection was closed"):
        connection.call(MANAGER, "Ask")
    connection.close()
    connection.close()


def test_who_is_not_let_in_is_told_so(peer: Callable[..., Path]) -> None:
    path = peer(lambda _: [], word=b"REJECTED EXTERNAL\r\n")

    with pytest.raises(BusError, match=rf"cannot speak to {path}: .*REJECTED"):
        opened(path)


def test_a_socket_where_nobody_listens_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="ENOENT"):
        opened(tmp_path / "nobody")

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    with pytest.raises(BusError, match="ECONNREFUSED"):
        opened(tmp_path / "left")


def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="cannot speak to"):
        opened(tmp_path / ("x" * 200))


def test_garbage_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1024)
            client.sendall(b"OK 1\r\n")
            client.recv(1024)
            client.sendall(b"no message at all, but more than sixteen bytes")
            client.recv(1024)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    connection = opened(tmp_path / "socket", patience_sec=1.0)

    with pytest.raises(BusError, match="Ask was not answered"):
        connection.call(MANAGER, "Ask")
    connection.close()
    listener.close()
    thread.join(PATIENCE_SEC)


def test_the_type_of_the_message_is_a_call(peer: Callable[..., Path]) -> None:
    kinds = []

    def answer(message: Message) -> list[Message]:
        kinds.append(message.header.message_type)
        return [new_method_return(message)]

    connection = opened(peer(answer))
    connection.call(MANAGER, "Ask", "as", (["a", "b"],))
    connection.close()

    assert kinds == [MessageType.method_call]
