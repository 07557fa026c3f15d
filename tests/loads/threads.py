"""Burn CPU in COUNT processes at once, each SECONDS of wall time. `threads.py 4 1.0`.

Processes stand in for threads: in CPython, threads would share one CPU.
"""

import os
import sys
import time

end = time.monotonic() + float(sys.argv[2])
children = 0
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0:
        children = -1
        break
    children += 1
while time.monotonic() < end:
    for _ in range(1_000):
        pass
for _ in range(children):
    os.wait()
