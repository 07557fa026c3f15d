"""A server: by TCP it says who has come and sends as much as asked; by UDP it sends all back."""

from __future__ import annotations

import socket
import sys
import threading


def answer(connection: socket.socket, address: str) -> None:
    """Read a line with a count and one of any length; send the address and so many bytes."""
    with connection, connection.makefile("rb") as lines:
        count = int(lines.readline())
        lines.readline()
        connection.sendall(address.encode() + b"\n" + bytes(count))


def echo(server: socket.socket) -> None:
    """Send every datagram back."""
    while True:
        data, sender = server.recvfrom(65536)
        server.sendto(data, sender)


def main(address: str) -> None:
    """Serve until killed."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, 7002))
    threading.Thread(target=echo, args=(datagrams,), daemon=True).start()
    with socket.create_server((address, 7001)) as server:
        print("ready", flush=True)
        while True:
            connection, (peer, _) = server.accept()
            threading.Thread(target=answer, args=(connection, peer), daemon=True).start()


main(sys.argv[1])
