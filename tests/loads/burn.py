"""Use SECONDS of CPU time beyond an idle start, by the thread's clock. `burn.py 1.5`.

Prints the microseconds of CPU time that the process has used in all when it ends: what an outside
counter has beyond that is the end of a process, which is the kernel's alone here.
"""

import os
import sys
import time

end_ns = time.thread_time_ns() + int(float(sys.argv[1]) * 1e9)
while time.thread_time_ns() < end_ns:
    for _ in range(1_000):
        pass
os.write(1, b"%d\n" % (time.process_time_ns() // 1_000))
os._exit(0)
