"""`knock.py ADDRESS PORT tcp|udp`: prints whom the server at this port has seen, or `echoed`."""

from __future__ import annotations

import socket
import sys

_PATIENCE_SEC = 10


def main(address: str, port: str, protocol: str) -> None:
    place = (address, int(port))
    if protocol == "tcp":
        with socket.create_connection(place, timeout=_PATIENCE_SEC) as connection:
            connection.sendall(b"1000\n\n")
            with connection.makefile("rb") as answer:
                print(answer.readline().decode().strip(), len(answer.read()))
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(_PATIENCE_SEC)
        datagrams.sendto(b"x" * 3000, place)
        data, sender = datagrams.recvfrom(65536)
        assert (len(data), sender) == (3000, place)
        print("echoed")


main(*sys.argv[1:])
