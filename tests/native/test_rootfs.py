"""A run in a root file system of its own, as root and as a plain user: one made of busybox."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.kernel import guard

APPLETS = ("sh", "cat", "df", "grep", "hostname", "id", "ls", "mkdir", "mknod", "ps", "rm", "sleep")
APPLETS = (*APPLETS, "stat", "touch", "true", "dd", "kill", "ip", "readlink", "chown")
FOURTEEN = "00000000a80425fb"

pytestmark = pytest.mark.both


def make_rootfs(directory: Path) -> Path:
    """Fill a directory with a busybox and what it needs."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed")
    for name in ("bin", "etc", "tmp", "root"):
        (directory / name).mkdir(parents=True)
    shutil.copy(busybox, directory / "bin/busybox")
    for name in APPLETS:
        (directory / "bin" / name).symlink_to("busybox")
    (directory / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/tmp:\n")
    (directory / "etc/group").write_text("root:x:0:\nvideo:x:44:alice\n")
    for path in (directory, *directory.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    return directory


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """One that belongs to root; a plain user's is below `plain_home`."""
    if os.geteuid() != 0:
        pytest.skip("namespaces without a user namespace need root")
    return make_rootfs(tmp_path / "rootfs")


Inside = Callable[..., Any]


@pytest.fixture
def inside(cli: Callable[..., Any], rootfs: Path) -> Inside:
    """`inside("id", flags=["-u", "alice"])` runs a command in the root file system."""

    def run(*command: str, flags: tuple[str | Path, ...] = (), **options: Any) -> Any:
        return cli("run", "-q", "--rootfs", rootfs, *flags, "--", *command, **options)

    return run


@pytest.fixture
def plain_inside(plain_user: Callable[..., Any], plain_home: Path) -> Inside:
    """The same as a plain user, whose root file system is its own."""
    rootfs = make_rootfs(plain_home / "rootfs")
    for path in (rootfs, *rootfs.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)

    def run(*command: str, flags: tuple[str | Path, ...] = (), **options: Any) -> Any:
        words = ["-m", "sandbox", "run", "-q", "--rootfs", rootfs, *flags, "--", *command]
        done = plain_user("python", *words, **options)
        if "user namespaces may be closed" in done.stderr:
            pytest.skip("a plain user may make no user namespace here")
        return done

    return run


def test_the_program_is_alone_in_its_root(inside: Inside, rootfs: Path) -> None:
    done = inside("sh", "-c", "ls /; ps | grep -c -v PID; hostname; echo $HOME; touch /new")

    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"bin", "dev", "proc", "sys"} <= set(lines)
    assert "home" not in lines
    assert lines[-1] == "/root"
    assert int(lines[-3]) <= 4  # itself, and what it runs at this moment
    assert sorted(path.name for path in rootfs.iterdir()) == ["bin", "etc", "root", "tmp"]


def test_nothing_is_left_of_what_it_has_written(
    inside: Inside, sandbox_home: Path, rootfs: Path
) -> None:
    done = inside("sh", "-c", "mkdir -p /a/b && echo x >/a/b/c && rm -r /tmp && cat /a/b/c")

    assert (done.status, done.stdout) == (0, "x\n"), done.stderr
    (run,) = (sandbox_home / "runs").iterdir()
    assert not (run / "root").exists()
    assert (rootfs / "tmp").is_dir()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("nosuch",), 127),
        (("/etc/passwd",), 126),
        (("sh", "-c", "kill -9 -1; exit 5"), 5),
        (("sh", "-c", "sh -c 'kill -9 $$'; exit $?"), 137),
    ],
)
def test_the_exit_status_is_the_programs(
    inside: Inside, command: tuple[str, ...], status: int
) -> None:
    done = inside(*command)

    assert done.status == status, done


def test_root_inside_has_dockers_capabilities_and_no_more(inside: Inside) -> None:
    done = inside("grep", "-E", "Cap(Prm|Eff|Bnd)|NoNewPrivs", "/proc/self/status")

    values = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert values == {"NoNewPrivs": "1", **dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), FOURTEEN)}


def test_the_users_of_the_root_file_system_count(inside: Inside) -> None:
    done = inside("sh", "-c", "id; grep CapEff /proc/self/status", flags=("-u", "alice"))

    assert "uid=1000(alice) gid=1000 groups=44(video)" in done.stdout
    assert "CapEff:\t0000000000000000" in done.stdout
    assert inside("id", flags=("-u", "nosuch")).status == 126


def test_a_device_that_is_made_inside_cannot_be_opened(inside: Inside) -> None:
    places = "/x /dev/x /tmp/x /dev/shm/x"

    done = inside("sh", "-c", f"for i in {places}; do mknod $i c 1 3 && cat $i; done")

    assert done.status != 0
    assert done.stderr.count("Permission denied") == 4, done.stderr


def test_what_tells_of_the_host_is_hidden_or_read_only(inside: Inside) -> None:
    script = (
        "cat /proc/timer_list /proc/keys; ls /sys/firmware; echo x >/proc/sys/kernel/domainname"
    )

    done = inside("sh", "-c", script)

    assert done.status != 0
    assert done.stdout == ""
    assert "Read-only file system" in done.stderr


def test_limits_hold_and_are_measured(
    inside: Inside, tmp_path: Path, load: Callable[..., list[str]]
) -> None:
    result = tmp_path / "result.json"
    script = "dd if=/dev/zero of=/dev/shm/x bs=1M count=64"

    done = inside("sh", "-c", script, flags=("-m", "32m", "-o", result))

    assert done.status != 0
    record = json.loads(result.read_text())
    assert record["totals"]["memory_peak_bytes"] > 16 << 20
    assert record["spec"]["root"]["network"] == "host"


def test_a_time_out_ends_everything_inside(inside: Inside) -> None:
    started = time.monotonic()

    done = inside("sh", "-c", "sleep 60 & sleep 60", flags=("--timeout", "200ms"))

    assert done.status == 124
    assert time.monotonic() - started < 20


def test_mounts_are_where_they_were_asked_for(inside: Inside, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "file").write_text("from the host\n")
    script = (
        "cat /a/file /b/c/file; echo new >/a/new; touch /b/c/no || echo ro;"
        " df /t | grep -c ' 1024 '; touch /no || echo root; touch /v/yes && echo v"
    )

    done = inside(
        "sh",
        "-c",
        script,
        flags=(
            *("-v", f"{shown}:/a", "--mount", f"type=bind,source={shown},target=/b/c,readonly"),
            *("--tmpfs", "/t:size=1m", "--read-only", "-v", "/v"),
        ),
    )

    said = done.stdout.splitlines()
    assert said == ["from the host", "from the host", "ro", "1", "root", "v"], done.stderr
    assert (shown / "new").read_text() == "new\n"


def test_names_hosts_and_networks_are_as_asked_for(inside: Inside) -> None:
    done = inside(
        "sh",
        "-c",
        "hostname; cat /etc/hostname; grep db /etc/hosts; ip link | grep -c '^[0-9]'; pwd",
        flags=(
            *("--hostname", "box", "--add-host", "db:10.1.2.3", "--network", "none"),
            *("-w", "/made/for/it"),
        ),
    )

    assert done.stdout.splitlines() == ["box", "box", "10.1.2.3\tdb", "1", "/made/for/it"]


def test_the_entrypoint_takes_the_command_as_its_arguments(inside: Inside) -> None:
    assert inside("/etc/group", flags=("--entrypoint", "cat")).stdout.startswith("root:x:0:")


def test_the_environment_is_not_the_hosts(inside: Inside) -> None:
    done = inside("sh", "-c", "echo $SECRET-$GIVEN-$PATH", flags=("-e", "GIVEN=1"))

    assert done.stdout.startswith("-1-/usr/local/sbin:")


def test_flags_of_a_root_file_system_need_one(cli: Callable[..., Any]) -> None:
    done = cli("run", "-v", "/a:/b", "--", "true")

    assert done.status == 125
    assert "--volume has no meaning on the host's own root file system" in done.stderr
    assert "hint: it goes with --image NAME or --rootfs DIR" in done.stderr


def test_what_cannot_be_mounted_is_one_error(inside: Inside, tmp_path: Path) -> None:
    done = inside("true", flags=("-v", f"{tmp_path}/nosuch:/x"))

    assert done.status == 125
    assert "there is nothing to mount at" in done.stderr


# --- one that is not to be trusted ----------------------------------------------------------------

FEW_TARGETS = ("proc", "dev", "etc/resolv.conf", "mnt/inner")
MORE_TARGETS = ("sys", "etc", "etc/hosts", "etc/hostname", "etc/passwd", "mnt", "job")
TARGETS = (
    *FEW_TARGETS,
    *(pytest.param(target, marks=pytest.mark.slow) for target in MORE_TARGETS),
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "kind",
    [
        "absolute",
        pytest.param("relative", marks=pytest.mark.slow),
        pytest.param("root", marks=pytest.mark.slow),
    ],
)
def test_a_link_in_the_place_of_a_mount_leads_nowhere_outside(
    inside: Inside, rootfs: Path, tmp_path: Path, target: str, kind: str
) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").write_text("untouched")
    place = rootfs / target
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(
        {
            "absolute": str(canary / "new"),
            "relative": "../" * 12 + str(canary / "new").lstrip("/"),
            "root": f"/proc/1/root{canary}/new",
        }[kind]
    )
    before = sorted((path, path.lstat().st_mtime_ns) for path in canary.rglob("*"))

    done = inside(
        "true",
        flags=("-v", f"{rootfs}/bin:/mnt/inner", "--tmpfs", "/mnt/t", "-w", "/job/it"),
    )

    assert done.status in {0, 125}, done.stderr
    assert "Traceback" not in done.stderr
    after = sorted((path, path.lstat().st_mtime_ns) for path in canary.rglob("*"))
    assert after == before
    assert (canary / "file").read_text() == "untouched"


def test_no_descriptor_of_the_host_gets_inside(
    rootfs: Path, sandbox_home: Path, tmp_path: Path
) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    os.set_inheritable(fd, True)  # noqa: FBT003 - the standard library's way
    words = [sys.executable, "-m", "sandbox", "run", "-q", "--rootfs", str(rootfs)]
    try:
        seen = [
            subprocess.run(
                [*words, *flags, "--", *command],
                close_fds=False,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            for flags, command in (
                ([], ["readlink", f"/proc/self/fd/{fd}"]),
                (["-w", f"/proc/self/fd/{fd}"], ["ls"]),
            )
        ]
    finally:
        os.close(fd)

    assert seen[0].returncode == 1
    assert seen[1].returncode == 125
    assert [done.stdout for done in seen] == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_nor_does_it_for_a_plain_user(plain_inside: Inside, plain_home: Path, target: str) -> None:
    canary = plain_home / "canary"
    canary.mkdir()
    os.chown(canary, 65534, 65534)
    place = plain_home / "rootfs" / target
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    for parent in reversed(place.relative_to(plain_home).parents[:-1]):
        (plain_home / parent).mkdir(exist_ok=True)
        os.chown(plain_home / parent, 65534, 65534)
    place.symlink_to(canary / "new")

    done = plain_inside(
        "true", flags=("-v", f"{plain_home}:/mnt/inner", "--tmpfs", "/mnt/t", "-w", "/job/it")
    )

    assert done.status in {0, 125, 126, 127}, done.stderr
    assert "Traceback" not in done.stderr
    assert list(canary.iterdir()) == []


# --- as a plain user ------------------------------------------------------------------------------


def test_a_plain_user_is_root_inside_and_nobody_outside(
    plain_inside: Inside, plain_home: Path
) -> None:
    shown = plain_home / "shown"
    shown.mkdir()
    os.chown(shown, 65534, 65534)

    anew = "rm -r /tmp && mkdir /tmp" if _keeps_user_attributes(plain_home) else "true"

    done = plain_inside(
        "sh",
        "-c",
        f"id -u; touch /x /shown/x && {anew} && echo done",
        flags=("-v", f"{shown}:/shown"),
    )

    assert done.stdout.splitlines() == ["0", "done"], done.stderr
    assert (shown / "x").stat().st_uid == 65534
    (run,) = (plain_home / "sandbox-home/runs").iterdir()
    assert not (run / "root").exists()


def _keeps_user_attributes(directory: Path) -> bool:
    """Return whether an overlay there can note that a directory hides the one below it."""
    file = directory / "attributes"
    file.touch()
    try:
        os.setxattr(file, "user.test", b"1")
    except OSError:  # tmpfs before Linux 6.6
        return False
    return True


def test_a_plain_user_may_be_any_one_user_inside(plain_inside: Inside) -> None:
    done = plain_inside("id", "-u", flags=("-u", "alice"))

    assert done.stdout == "1000\n", done.stderr


def test_a_plain_user_with_lent_ids_is_many_users_inside(
    plain_inside: Inside, plain_home: Path, tmp_path: Path, plain_user: Callable[..., Any]
) -> None:
    if shutil.which("newuidmap") is None:
        pytest.skip("newuidmap is not installed")
    lent = tmp_path / "lent"
    lent.write_text("nobody:500000:65536\n65534:600000:65536\n")
    words = ["-m", "sandbox", "run", "-q", "--rootfs", str(plain_home / "rootfs"), "-u", "alice"]
    script = "id; touch /tmp/x && stat -c %u /tmp/x; chown 7 /tmp/x; cat /proc/self/uid_map"
    as_root = ["run", "-q", "--rootfs", str(plain_home / "rootfs")]
    root_script = "mkdir -m 700 /d && touch /d/x && chown -R 7:8 /d && stat -c %u:%g /d/x"
    (plain_home / "rootfs/tmp").chmod(0o1777)
    plain_inside("true")  # which skips where there can be no user namespace

    # In a mount namespace of the test's own the files of /etc say what the test wants.
    shell = (
        f"mount --bind {lent} /etc/subuid && mount --bind {lent} /etc/subgid && "
        'exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
    )
    python = plain_user("python", "-c", "import sys; print(sys.executable)").stdout.strip()
    environment = {
        **os.environ,
        "HOME": str(plain_home),
        "SANDBOX_HOME": str(plain_home / "sandbox-home"),
        "PYTHONPATH": f"{Path(__file__).parents[2]}:{sysconfig.get_path('purelib')}",
    }
    done = [
        subprocess.run(
            ["unshare", "-m", "sh", "-c", shell, "sh", python, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        for words in (
            [*words, "--", "sh", "-c", script],
            ["-m", "sandbox", *as_root, "--", "sh", "-c", root_script],
        )
    ]

    assert "uid=1000(alice) gid=1000 groups=44(video)" in done[0].stdout, done[0].stderr
    assert "\n1000\n" in done[0].stdout
    assert "500000" in done[0].stdout
    assert "Operation not permitted" in done[0].stderr
    assert done[1].stdout == "7:8\n", done[1].stderr
    left = [run for run in (plain_home / "sandbox-home/runs").iterdir() if (run / "root").exists()]
    assert left == []


@pytest.mark.slow
def test_a_plain_user_has_no_network_if_none_is_asked_for(plain_inside: Inside) -> None:
    done = plain_inside("sh", "-c", "ip link | grep -c '^[0-9]'", flags=("--network", "none"))

    assert done.stdout == "1\n", done.stderr


# --- when the supervisor is killed ----------------------------------------------------------------


def test_the_killed_supervisors_run_leaves_nothing(
    rootfs: Path, sandbox_home: Path, tmp_path: Path
) -> None:
    started = tmp_path / "shared"
    started.mkdir()
    script = "mkdir /deep && touch /deep/x && touch /shared/started; sleep 60"
    supervisor = subprocess.Popen(
        [
            *(sys.executable, "-m", "sandbox"),
            *("run", "-q", "--rootfs", rootfs, "-v", f"{started}:/shared", "--"),
            *("sh", "-c", script),
        ],
        env={**os.environ, "SANDBOX_HOME": str(sandbox_home)},
    )
    deadline = time.monotonic() + 20
    while not (started / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (started / "started").exists()
    (run,) = (sandbox_home / "runs").iterdir()
    assert (run / "root").exists()

    supervisor.kill()
    supervisor.wait(10)

    while (run / "root").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not (run / "root").exists()


def test_clean_removes_what_nobody_else_could(
    cli: Callable[..., Any], inside: Inside, sandbox_home: Path
) -> None:
    assert inside("true").status == 0
    (run,) = (sandbox_home / "runs").iterdir()
    closed = run / "root/upper/closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    closed.chmod(0)

    done = cli("clean")  # its status may tell of others on this machine

    assert f"{run.name}: removed 1 directories of a root file system" in done.stdout
    assert not (run / "root").exists()
    assert run.exists()


# --- signals --------------------------------------------------------------------------------------

DEAF = "sleep 60"
HEARS = "trap 'echo heard; exit 9' TERM; echo up; while true; do sleep 0.01; done"


def _start(
    rootfs: Path, sandbox_home: Path, *command: str, flags: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "sandbox", "run", "-q", "--rootfs", str(rootfs), *flags]
    return subprocess.Popen(
        [*words, "--", *command],
        env={**os.environ, "SANDBOX_HOME": str(sandbox_home)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("flags", [(), ("--init",)], ids=["first process", "init"])
def test_a_program_that_handles_no_signal_ends_by_it_as_anywhere_else(
    rootfs: Path, sandbox_home: Path, flags: tuple[str, ...]
) -> None:
    with _start(rootfs, sandbox_home, "sh", "-c", f"echo up; exec {DEAF}", flags=flags) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(0.05)  # let it become `sleep`; were it late, the shell would end the same

        process.send_signal(signal.SIGTERM)

        assert process.wait(9) == 143  # before the grace of ten seconds is over


@pytest.mark.parametrize("flags", [(), ("--init",)], ids=["first process", "init"])
def test_a_program_that_handles_a_signal_gets_it(
    rootfs: Path, sandbox_home: Path, flags: tuple[str, ...]
) -> None:
    with _start(rootfs, sandbox_home, "sh", "-c", HEARS, flags=flags) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"

        process.send_signal(signal.SIGTERM)

        assert process.wait(9) == 9
        assert process.stdout.read() == "heard\n"


def test_init_reaps_what_others_leave_and_cannot_be_looked_into(inside: Inside) -> None:
    script = (
        "sh -c 'sleep 0.05 & exit 0'; sleep 0.3; ls -d /proc/[0-9]* | grep -c .; echo $$;"
        " readlink /proc/1/exe; cat /proc/1/fd/0 /proc/1/environ; exit 4"
    )

    done = inside("sh", "-c", script, flags=("--init",))

    assert done.status == 4
    assert done.stdout.split() == ["4", "2"], done  # init, the shell, `ls` and `grep`
    assert done.stderr.count("Permission denied") == 2


def test_wait_all_waits_for_every_process_inside(inside: Inside) -> None:
    done = inside("sh", "-c", "(sleep 0.2; echo late) & exit 3", flags=("--wait-all",))

    assert (done.status, done.stdout) == (3, "late\n")


@pytest.mark.slow
def test_init_tells_the_signal_that_ended_the_program(inside: Inside) -> None:
    done = inside("sh", "-c", "kill -SEGV $$", flags=("--init",))

    assert done.status == 139


@pytest.mark.parametrize("shell", ["/bin/sh", "/nowhere/sh"], ids=["shell", "python"])
def test_a_guard_takes_away_what_the_run_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setattr(guard, "_SHELL", shell)
    scratch = tmp_path / "a scratch; $directory"
    (scratch / "upper/closed").mkdir(parents=True)
    (scratch / "upper/closed/file").touch()
    (scratch / "upper/link").symlink_to(tmp_path)
    (scratch / "upper/closed").chmod(0)
    one = guard.Guard.start()

    one.take_away(scratch)

    assert one.act()
    assert not scratch.exists()
    assert tmp_path.exists()


def test_a_plain_users_killed_supervisor_leaves_nothing(
    plain_inside: Inside, plain_user: Callable[..., Any], plain_home: Path
) -> None:
    plain_inside("true")  # which skips where there can be no user namespace
    code = (
        "import os, signal, subprocess, sys, time\n"
        "words = [sys.executable, '-m', 'sandbox', 'run', '-q', '--rootfs', *sys.argv[1:]]\n"
        "process = subprocess.Popen(words, stdout=subprocess.PIPE)\n"
        "assert process.stdout.readline() == b'up\\n'\n"
        "process.kill()\n"
        "process.wait()\n"
    )
    script = "mkdir -m 0 /deep && touch /tmp/x; echo up; sleep 60"

    done = plain_user("python", "-c", code, plain_home / "rootfs", "--", "sh", "-c", script)

    assert done.status == 0, done.stderr
    runs = plain_home / "sandbox-home/runs"
    deadline = time.monotonic() + 20
    while any((run / "root").exists() for run in runs.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [run for run in runs.iterdir() if (run / "root").exists()]


# --- from Python ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_function_call_runs_in_a_root_file_system(
    rootfs: Path, sandbox_home: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, sandbox\n"
        "result = sandbox.run(['sh', '-c', 'exit 3'], rootfs=sys.argv[1], memory='64m')\n"
        "print(result.exit_code, result.spec['root']['network'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(rootfs)],
        env={**os.environ, "SANDBOX_HOME": str(sandbox_home)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.stdout == "3 host\n", done.stderr


def test_a_run_without_a_network_says_so(inside: Inside, tmp_path: Path) -> None:
    result = tmp_path / "result.json"

    inside("true", flags=("--network", "none", "-o", result))

    record = json.loads(result.read_text())
    assert record["totals"]["network"] == []
    assert "network" not in record["unavailable"]


PRIVATE = (
    "ip -4 -o addr show dev {port} | grep -c inet; ip route | grep -c default; "
    "ls /sys/class/net; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; cat /etc/resolv.conf; "
    "id -u"
)


def test_a_private_network_inside(inside: Inside, tmp_path: Path) -> None:
    result = tmp_path / "result.json"

    done = inside(
        "sh", "-c", PRIVATE.format(port="eth0"), flags=("--network", "private", "-o", result)
    )

    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:5] == ["1", "1", "eth0", "lo", "0"]
    assert not [line for line in lines if line.startswith("nameserver 127.")]
    assert lines[-1] == "0"
    record = json.loads(result.read_text())
    assert [port["name"] for port in record["totals"]["network"]] == ["eth0"]
    assert not Path(f"/proc/sys/net/ipv4/conf/sbx{record['run_id']}").exists()


def test_a_plain_user_has_a_private_network_inside(plain_inside: Inside) -> None:
    if shutil.which("pasta") is None:
        pytest.skip("`pasta` (passt) is not installed")

    done = plain_inside("sh", "-c", "ip route; ls /sys/class/net", flags=("--network", "private"))

    if "does this host have a way out" in done.stderr:
        pytest.skip("this host has no way out that pasta could take")
    assert done.status == 0, done.stderr
    assert "default via" in done.stdout
    assert len(done.stdout.splitlines()[-2:]) == 2
    assert done.stdout.splitlines()[-1] == "lo"


# --- older kernels --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kernel_that_takes_layers_as_one_text_only_will_do(
    rootfs: Path,
    tmp_path: Path,
    plain_user: Callable[..., Any],
    plain_home: Path,
    old_kernel: str,
) -> None:
    home = tmp_path / "a home, with: signs"
    words = ["run", "-q", "--rootfs", str(rootfs), "--", "sh", "-c", "touch /x && ls /x"]
    plain = make_rootfs(plain_home / "root: of, one")
    for path in (plain, *plain.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)

    done = subprocess.run(
        [sys.executable, "-c", old_kernel, *words],
        env={**os.environ, "SANDBOX_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    words[3] = str(plain)
    done_by_plain = plain_user("python", "-c", old_kernel, *words)

    assert done.stdout == "/x\n", done.stderr
    if "user namespaces may be closed" not in done_by_plain.stderr:
        assert done_by_plain.stdout == "/x\n", done_by_plain.stderr


# --- where no disk can hold what is written -------------------------------------------------------


@pytest.mark.slow
def test_where_no_disk_can_hold_what_is_written_memory_does(rootfs: Path, tmp_path: Path) -> None:
    for name in ("lower", "upper", "work", "home"):
        (tmp_path / "over" / name).mkdir(parents=True)
    over = tmp_path / "over"
    options = f"lowerdir={over}/lower,upperdir={over}/upper,workdir={over}/work"
    words = [sys.executable, "-m", "sandbox", "run", "--rootfs", str(rootfs)]
    script = 'mount -t overlay overlay -o "$0" "$1" || exit 77; shift; exec "$@"'

    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            options,
            over / "home",
            *words,
            "--",
            "sh",
            "-c",
            "touch /x && ls /x; stat -c %a /",
        ],
        env={**os.environ, "SANDBOX_HOME": str(over / "home")},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    if done.returncode == 77:
        pytest.skip("no overlay can be mounted here")
    assert done.stdout == "/x\n755\n", done.stderr
    assert "what the run writes to its root goes to memory" in done.stderr
