"""Flags and commands whose status and output say all that a program finds in an image."""

from __future__ import annotations

from typing import Any

CONFIG: dict[str, Any] = {
    "Env": ["FOO=bar", "PATH=/bin"],
    "Cmd": ["sh", "-c", "echo $FOO; pwd; id -un"],
    "WorkingDir": "/made/../work dir",
    "User": "alice:video",
    "Volumes": {"/data": {}},
}
ENV_FILE = '# a comment\nB=2 # x\nPASSED\nQ="q"\nNOT_SET\n'


def sh(script: str) -> tuple[str, ...]:
    return "sh", "-c", script


OURS = "-e HOSTNAME -e SANDBOX_ -e THREADS -e CPU_COUNT"
MASKED = "/proc/kcore /proc/keys /proc/timer_list /proc/acpi /proc/scsi /sys/firmware"
CLOSED = "/proc/sys/kernel/domainname /proc/sysrq-trigger /proc/irq/0 /proc/bus/x /proc/fs/x"
SIZES = (
    f'for i in {MASKED}; do if [ -d $i ]; then echo "$i $(ls $i | wc -l)"; '
    'else echo "$i $(head -c 9 $i 2>&1 | wc -c)"; fi; done'
)
DEVICES = (
    "for i in /dev/*; do stat -c '%n %A %u %g %t %T' $i; done | grep -v -e /dev/std -e /dev/fd; "
    "for i in /dev/fd /dev/std* /dev/ptmx /dev/core; do readlink $i; done; ls /dev/pts"
)
OPENED = "(: < {0}) 2> /dev/null && echo read; (: > {0}) 2> /dev/null && echo written; true"
NODES = '"c 1 3" "c 1 5" "c 1 7" "c 1 8" "c 1 9" "c 5 2" "c 10 229" "c 10 237" "b 7 0"'
MADE = (
    f"mkdir /m; mount -t tmpfs none /m; for i in {NODES}; do echo $i; mknod /m/x $i; "
    f"{OPENED.format('/m/x')}; rm /m/x; done"
)

ROOT = ("-u", "0")
MAY_MOUNT = (*ROOT, "--cap-add", "SYS_ADMIN")
SAME: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "exit status": ((), sh("exit 7")),
    "not found": ((), ("nosuch",)),
    "not found by its path": ((), ("/bin/nosuch",)),
    "a directory": ((), ("/etc",)),
    "a signal in a shell": ((), sh("sh -c 'kill -TERM $$'; exit $?")),
    "SIGKILL to itself": ((), sh("kill -KILL $$; exit 3")),
    "the image's command": ((), ()),
    "the image's user": ((), ("id",)),
    "root": (ROOT, ("id",)),
    "a uid": (("-u", "1000"), ("id",)),
    "a name": (("-u", "alice"), ("id",)),
    "uid:gid": (("-u", "1000:44"), ("id",)),
    "name:group": (("-u", "alice:video"), ("id",)),
    "a uid without a name": (("-u", "4242"), ("id",)),
    ":gid": (("-u", ":44"), ("id",)),
    "variables": (
        ("-e", "A=1", "-e", "PASSED", "-e", "NOT_SET", "-e", "FOO="),
        sh(f"env | grep -v {OURS} | sort"),
    ),
    "a file of variables": (("--env-file", "ENV_FILE"), sh(f"env | grep -v {OURS} | sort")),
    "a variable without a name": (("-e", "=x"), ("true",)),
    "HOME of root": (ROOT, sh("echo $HOME")),
    "HOME of a name": (("-u", "alice"), sh("echo $HOME")),
    "HOME of nobody": (("-u", "4242"), sh("echo $HOME")),
    "HOME that is given": (("-e", "HOME=/x"), sh("echo $HOME")),
    "the image's directory, made": ((), sh("pwd; stat -c '%u %g %a' .")),
    "a directory, made": (("-w", "/not/there"), sh("pwd; stat -c '%u %g %a' . ..")),
    "a relative directory": (("-w", "rel"), ("pwd",)),
    "a directory in a file": (("-w", "/etc/passwd/x"), ("pwd",)),
    "an entrypoint": (("--entrypoint", "echo"), ("a", "b")),
    "no entrypoint": (("--entrypoint=",), ("echo", "b")),
    "no entrypoint and no command": (("--entrypoint=",), ()),
    "capabilities": (ROOT, ("grep", "^Cap", "/proc/self/status")),
    "capabilities of a user": (("-u", "alice"), ("grep", "^Cap", "/proc/self/status")),
    "a filter of system calls": ((), ("grep", "^Seccomp:", "/proc/self/status")),
    "umask": ((), sh("umask")),
    "ulimits": ((), sh("ulimit -c; ulimit -s; ulimit -n; ulimit -u")),
    "a ulimit": (("--ulimit", "nofile=99:100"), sh("ulimit -n; ulimit -Hn")),
    "devices": (ROOT, sh(DEVICES)),
    "a device to read": (
        (*ROOT, "--device", "/dev/fuse:/dev/x:r"),
        sh(OPENED.format("/dev/x")),
    ),
    "a device to write": (
        (*ROOT, "--device", "/dev/fuse:/dev/x:w"),
        sh(OPENED.format("/dev/x")),
    ),
    "devices that are made": (MAY_MOUNT, sh(MADE)),
    "devices by a rule": ((*MAY_MOUNT, "--device-cgroup-rule", "c 10:229 r"), sh(MADE)),
    "devices by a wide rule": ((*MAY_MOUNT, "--device-cgroup-rule", "c 10:* rw"), sh(MADE)),
    "a rule that is none": (("--device-cgroup-rule", "c 10 r"), ("true",)),
    "what is masked": (ROOT, sh(SIZES)),
    "what is read-only": (
        ROOT,
        sh(f"for i in {CLOSED}; do (echo x >$i) 2>&1 | grep -o '[A-Z][a-z -]*$'; done"),
    ),
    "host name": (
        ("--hostname", "box", "--network", "none"),
        sh("hostname; cat /etc/hostname; echo $HOSTNAME; ls /sys/class/net"),
    ),
    "a host name with a domain": (
        ("--hostname", "b.example.org"),
        sh("hostname; cat /etc/hostname"),
    ),
    "a host more": (("--add-host", "db:10.1.2.3"), ("grep", "-w", "db", "/etc/hosts")),
    "files for names": ((), sh("cd /etc; stat -c '%n %u %g %a' hosts hostname resolv.conf")),
    "read-only": (
        ("--read-only", *ROOT),
        sh("touch /x; touch /dev/shm/x && echo shm; touch /dev/x && echo dev; touch /etc/hosts"),
    ),
    "a tmpfs in a read-only root": (
        ("--read-only", "--tmpfs", "/t", *ROOT),
        sh("touch /t/x && stat -c %a /t; awk '$2==\"/t\" {print $3,$4}' /proc/mounts"),
    ),
    "a tmpfs with options": (
        ("--tmpfs", "/t:size=1m,mode=700,exec", *ROOT),
        sh("stat -c %a /t; awk '$2==\"/t\" {print $3,$4}' /proc/mounts"),
    ),
    "the image's volume": (
        ("--read-only", *ROOT),
        sh("cat /data/in; touch /data/x && echo written; stat -c '%u %a' /data"),
    ),
    "a read-only bind": (
        ("-v", "SHOWN:/s:ro", *ROOT),
        sh("cat /s/file; touch /s/x"),
    ),
    "a bind that is written to": (("-v", "SHOWN:/s", *ROOT), sh("echo new >/s/new; cat /s/new")),
    "two mounts at one place": (("--tmpfs", "/t", "-v", "SHOWN:/t"), ("true",)),
    "/dev/shm of a size": (("--shm-size", "1m"), sh("df /dev/shm | awk 'END {print $2}'")),
    "the first process": ((), sh("echo $$; cat /proc/1/comm")),
    "the status through an init": (("--init",), sh("sh -c 'kill -SEGV $$'; exit $?")),
    "out of memory": (
        ("-m", "16m", "--shm-size", "99m", *ROOT),
        ("dd", "if=/dev/zero", "of=/dev/shm/x", "bs=1M", "count=64"),
    ),
    "processes": (
        ("--pids-limit", "3"),
        sh("for i in 1 2 3 4 5; do sleep 0.2 & done; wait"),
    ),
    "another platform": (("--platform", "linux/s390x"), ("true",)),
    "priorities": ((), sh("cat /proc/self/oom_score_adj; awk '{print $18,$19}' /proc/self/stat")),
    "descriptors": ((), sh("ls /proc/self/fd | sort | tr '\\n' ' '")),
    "modes": (ROOT, sh("cd /; stat -c '%n %u %g %a' . proc sys dev dev/pts dev/shm tmp data")),
}
