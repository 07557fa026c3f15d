"""Touch MIB of anonymous memory page by page, then hold it. `python -I -S touch.py 64 0.5`."""

import mmap
import sys
import time

size_bytes = int(sys.argv[1]) << 20
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # the default would be shared memory
block = mmap.mmap(-1, max(size_bytes, mmap.PAGESIZE), flags=private)
block.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page would touch its neighbours too
for offset in range(0, size_bytes, mmap.PAGESIZE):
    block[offset] = 1
print("touched", flush=True)
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.3)
