"""Leave a daemon behind (setsid and a double fork) that sleeps for SECONDS, and exit at once.

`python -I -S daemonize.py 60 [PIDFILE]` prints the daemon's process id.
"""

import os
import sys
import time

read_end, write_end = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(write_end, str(os.getpid()).encode())
    os.close(write_end)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    time.sleep(float(sys.argv[1]))
    os._exit(0)
os.close(write_end)
os.waitpid(child, 0)
daemon = os.read(read_end, 32).decode()
if len(sys.argv) > 2:
    with open(sys.argv[2], "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs memory
        file.write(daemon)
print(daemon, flush=True)
