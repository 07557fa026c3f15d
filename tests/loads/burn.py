"""Use SECONDS of CPU time in one thread, by its own clock. `python -I -S burn.py 1.5`."""

import sys
import time

wanted_ns = int(float(sys.argv[1]) * 1e9)
while time.thread_time_ns() < wanted_ns:
    for _ in range(1_000):
        pass
