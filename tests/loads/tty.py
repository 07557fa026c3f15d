"""Say which of stdin, stdout and stderr are terminals, and who owns the terminal. `tty.py`."""

import os

print(*(f"{name}={os.isatty(fd)}" for fd, name in enumerate(("stdin", "stdout", "stderr"))))
if os.isatty(0):
    print(f"foreground={os.tcgetpgrp(0) == os.getpgrp()}")
