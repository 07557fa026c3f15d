"""Programs whose use is known, run with no imports but the standard library; one argument: a kind.

Each prints one line about itself. `python -I -S _loads.py touch 128 2`.
"""

import mmap
import os
import sys
import time

SHARED = "/tmp/comparison"


def touch(mebibytes: str, hold_sec: str) -> None:
    """Touch memory page by page, saying after each MiB in a file how far it came; then hold it."""
    size = int(mebibytes) << 20
    block = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_NOHUGEPAGE)
    progress = os.open(f"{SHARED}/progress", os.O_CREAT | os.O_WRONLY, 0o666)
    for offset in range(0, size, mmap.PAGESIZE):
        block[offset] = 1
        if offset % (1 << 20) == 0:
            os.pwrite(progress, b"%d\n" % (offset >> 20), 0)
    print("touched", flush=True)
    time.sleep(float(hold_sec))


def burn(cpu_sec: str, hold_sec: str) -> None:
    """Use CPU time, print how many microseconds the process has used, then hold still."""
    end = time.process_time() + float(cpu_sec)
    while time.process_time() < end:
        pass
    print(time.process_time_ns() // 1_000, flush=True)
    time.sleep(float(hold_sec))


def crowd(count: str, wall_sec: str) -> None:
    """Burn in several processes at once; print CPU time by wall time of all together."""
    start = time.monotonic()
    for _ in range(int(count)):
        if os.fork() == 0:
            while time.monotonic() - start < float(wall_sec):
                pass
            os._exit(0)
    for _ in range(int(count)):
        os.wait()
    used = os.times()
    cpu_sec = used.user + used.system + used.children_user + used.children_system
    print(cpu_sec / (time.monotonic() - start), flush=True)


def fork(count: str) -> None:
    """Print how many children, all waiting at once, were allowed."""
    read_end, write_end = os.pipe()
    allowed = 0
    for _ in range(int(count)):
        try:
            child = os.fork()
        except OSError:
            continue
        if child == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
        allowed += 1
    print(allowed, flush=True)


if __name__ == "__main__":
    {"touch": touch, "burn": burn, "crowd": crowd, "fork": fork}[sys.argv[1]](*sys.argv[2:])
