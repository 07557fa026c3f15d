"""Write KIB to PATH past the page cache, in blocks. `python -I -S direct_write.py PATH 1024`."""

import mmap
import os
import sys

BLOCK = 64 << 10
block = mmap.mmap(-1, BLOCK)  # O_DIRECT wants memory that starts at a page
block.write(b"\xa5" * BLOCK)
remaining = int(sys.argv[2]) << 10
if remaining % BLOCK:
    sys.exit("the size must be a multiple of 64 KiB")
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
while remaining:
    remaining -= os.write(descriptor, block)
os.close(descriptor)
