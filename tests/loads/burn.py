"""Use SECONDS of CPU time beyond an idle start, by the thread's clock. `burn.py 1.5`."""

import sys
import time

end_ns = time.thread_time_ns() + int(float(sys.argv[1]) * 1e9)
while time.thread_time_ns() < end_ns:
    for _ in range(1_000):
        pass
