"""`client.py tcp ADDRESS RECEIVE SEND`, or `client.py udp ADDRESS COUNT SIZE`.

Prints who the server has seen, waits until the last packet has passed, then for a line on stdin, if
that is a pipe, so that others can look at the counters meanwhile.
"""

from __future__ import annotations

import socket
import stat
import sys
import time
from os import fstat


def tcp(address: str, receive: int, send: int) -> None:
    with socket.create_connection((address, 7001), timeout=60) as connection:
        connection.sendall(b"%d\n" % receive + b"x" * send + b"\n")
        with connection.makefile("rb") as answer:
            print(answer.readline().decode().strip(), flush=True)
            assert len(answer.read()) == receive


def udp(address: str, count: int, size: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(60)
        datagrams.connect((address, 7002))
        for _ in range(count):
            datagrams.send(b"x" * size)
            assert len(datagrams.recv(65536)) == size
    print("echoed", flush=True)


def main() -> None:
    kind, address, first, second = sys.argv[1:]
    (tcp if kind == "tcp" else udp)(address, int(first), int(second))
    time.sleep(0.3)
    print("done", flush=True)
    if stat.S_ISFIFO(fstat(0).st_mode):
        sys.stdin.readline()


main()
