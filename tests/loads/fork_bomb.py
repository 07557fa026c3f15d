"""Fork up to COUNT children that all wait, and print how many the kernel allowed and refused.

`python -I -S fork_bomb.py 200`: bounded, so that a limit that fails does not fell the machine;
the children end with the parent, because they wait on its pipe.
"""

import os
import sys

read_end, write_end = os.pipe()
allowed = refused = 0
for _ in range(int(sys.argv[1])):
    try:
        child = os.fork()
    except OSError:
        refused += 1
        continue
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    allowed += 1
print(f"allowed {allowed} refused {refused}", flush=True)
os.close(write_end)
for _ in range(allowed):
    os.wait()
