"""`sandbox run`: flags to a RunSpec, a RunResult to a table and an exit status."""

# Without `from __future__ import annotations`: the flags are read from the types, not from texts.

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from sandbox.cli import root_options as root
from sandbox.cli import security_options as security
from sandbox.cli.console import CommandExit
from sandbox.cli.environments import provide_venv
from sandbox.cli.execution import execute, read_env_files
from sandbox.cli.gate_options import MaxCpuTime, MaxPeak, MaxTime, make_gates
from sandbox.cli.limit_options import (
    LIMITS,
    BlkioWeight,
    Cpus,
    CpusetCpus,
    DeviceReadBps,
    DeviceReadIops,
    DeviceWriteBps,
    DeviceWriteIops,
    MemoryHigh,
    MemoryReservation,
    MemorySwap,
    parse_rates,
)
from sandbox.cli.options import Words, option, parse_cpuset, parse_pids, parse_shares
from sandbox.spec import Capture, Limits, RunSpec, Ulimit, parse_environment, parse_signal
from sandbox.units import parse_duration, parse_size_or_unlimited


class Summary(StrEnum):
    """When to print the table."""

    ALWAYS = "always"
    AUTO = "auto"
    NEVER = "never"


CONTEXT_SETTINGS = {"allow_interspersed_args": False}

_PROGRAM, _OURS = "Program", "Measuring and results"


def run(
    command: Annotated[
        list[str] | None, Words(metavar="COMMAND [ARG]...", help="After --.")
    ] = None,
    cpus: Cpus = None,
    cpuset_cpus: CpusetCpus = None,
    cpu_shares: Annotated[
        int | None,
        option(
            "--cpu-shares",
            panel=LIMITS,
            metavar="N",
            parser=parse_shares,
            help="Weight beside others when CPUs are short; 1024 is usual.",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        option(
            "--memory",
            "-m",
            panel=LIMITS,
            metavar="SIZE",
            parser=parse_size_or_unlimited,
            envvar="SANDBOX_MEMORY",
            help="Memory limit: 512m, 2g. No swap beside it unless asked for.",
        ),
    ] = None,
    memory_swap: MemorySwap = None,
    memory_reservation: MemoryReservation = None,
    memory_high: MemoryHigh = None,
    pids_limit: Annotated[
        int | None,
        option(
            "--pids-limit",
            panel=LIMITS,
            metavar="N",
            parser=parse_pids,
            help="Processes and threads; 4096 unless given, -1 for no limit.",
        ),
    ] = None,
    blkio_weight: BlkioWeight = None,
    device_read_bps: DeviceReadBps = None,
    device_write_bps: DeviceWriteBps = None,
    device_read_iops: DeviceReadIops = None,
    device_write_iops: DeviceWriteIops = None,
    ulimit: Annotated[
        list[str] | None,
        option(
            "--ulimit",
            panel=LIMITS,
            metavar="NAME=SOFT[:HARD]",
            help="A resource limit of every process, such as nofile=1024.",
        ),
    ] = None,
    timeout: Annotated[
        int | None,
        option(
            "--timeout",
            panel=LIMITS,
            metavar="TIME",
            parser=parse_duration,
            help="Wall-clock time: 250ms, 10s, 1m30s. Exit status 124.",
        ),
    ] = None,
    cpu_time: Annotated[
        int | None,
        option(
            "--cpu-time",
            panel=LIMITS,
            metavar="TIME",
            parser=parse_duration,
            help="CPU time of all processes together. Exit status 124.",
        ),
    ] = None,
    stop_signal: Annotated[
        int | None,
        option(
            "--stop-signal",
            panel=LIMITS,
            metavar="SIGNAL",
            parser=parse_signal,
            help="Sent first when --stop-timeout gives a grace; TERM unless given.",
        ),
    ] = None,
    stop_timeout: Annotated[
        int | None,
        option(
            "--stop-timeout",
            panel=LIMITS,
            metavar="TIME",
            parser=parse_duration,
            help="Grace between the stop signal and SIGKILL.",
        ),
    ] = None,
    oom_continue: Annotated[
        bool,
        option(
            "--oom-continue",
            panel=LIMITS,
            help="Let the kernel kill one process for memory and the rest go on.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        option(
            "--strict",
            panel=LIMITS,
            envvar="SANDBOX_STRICT",
            help="Refuse to start when a limit that you gave cannot be enforced here.",
        ),
    ] = False,
    env: Annotated[
        list[str] | None,
        option(
            "--env", "-e", panel=_PROGRAM, metavar="NAME[=VALUE]", help="Set a variable for it."
        ),
    ] = None,
    env_file: Annotated[
        list[Path] | None,
        option("--env-file", panel=_PROGRAM, metavar="FILE", help="Set variables from a file."),
    ] = None,
    workdir: Annotated[
        str | None, option("--workdir", "-w", panel=_PROGRAM, metavar="DIR", help="Start there.")
    ] = None,
    user: Annotated[
        str | None,
        option("--user", "-u", panel=_PROGRAM, metavar="USER[:GROUP]", help="Run it as this user."),
    ] = None,
    venv: Annotated[
        Path | None,
        option("--venv", panel=_PROGRAM, metavar="DIR", help="Run it in this virtual environment."),
    ] = None,
    requirements: Annotated[
        list[Path] | None,
        option(
            "--requirements",
            panel=_PROGRAM,
            metavar="FILE",
            help="Run it in an environment with what FILE lists, or a script's header (PEP 723).",
        ),
    ] = None,
    pip: Annotated[
        list[str] | None,
        option(
            "--pip",
            panel=_PROGRAM,
            metavar="PACKAGE",
            help="Likewise with this package, such as `numpy>=2`; may be repeated.",
        ),
    ] = None,
    image: root.Image = None,
    rootfs: root.Rootfs = None,
    platform: root.Platform = None,
    volume: root.Volume = None,
    mount: root.MountFlag = None,
    tmpfs: root.Tmpfs = None,
    shm_size: root.ShmSize = None,
    read_only: root.ReadOnly = False,
    entrypoint: root.Entrypoint = None,
    hostname: root.Hostname = None,
    add_host: root.AddHost = None,
    network: root.NetworkFlag = None,
    publish: root.Publish = None,
    init: root.InitFlag = False,
    harden: security.HardenFlag = False,
    cap_add: security.CapAdd = None,
    cap_drop: security.CapDrop = None,
    security_opt: security.SecurityOpt = None,
    privileged: security.Privileged = False,
    device: security.DeviceFlag = None,
    device_cgroup_rule: security.DeviceCgroupRule = None,
    gpus: security.GpusFlag = None,
    ipc: security.Ipc = None,
    pid: security.Pid = None,
    thread_hints: Annotated[
        bool,
        option(
            "--thread-hints/--no-thread-hints",
            panel=_PROGRAM,
            help="Set OMP_NUM_THREADS and the like to the CPU limit; on unless refused.",
        ),
    ] = True,
    wait_all: Annotated[
        bool,
        option(
            "--wait-all",
            panel=_PROGRAM,
            help="Wait for every process, not for the main one alone.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        option("--detach", "-d", panel=_PROGRAM, help="Run in the background; print the run's id."),
    ] = False,
    capture: Annotated[
        Capture,
        option(
            "--capture",
            panel=_PROGRAM,
            metavar="[=tee]",
            alone=Capture.FILE.value,
            help="Keep its output in the run directory; =tee shows it as well.",
        ),
    ] = Capture.NONE,
    name: Annotated[
        str | None, option("--name", panel=_OURS, metavar="NAME", help="A name for the run.")
    ] = None,
    interval: Annotated[
        int | None,
        option(
            "--interval",
            panel=_OURS,
            metavar="TIME",
            parser=parse_duration,
            envvar="SANDBOX_INTERVAL",
            help="Time between samples, from 1ms; 10ms unless given.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            panel=_OURS,
            metavar="FILE",
            help="Write the result (.json) or the samples (.jsonl, .csv) to FILE.",
        ),
    ] = None,
    force: Annotated[
        bool, option("--force", panel=_OURS, help="Overwrite the file of --output.")
    ] = False,
    summary: Annotated[
        Summary,
        option(
            "--summary",
            panel=_OURS,
            envvar="SANDBOX_SUMMARY",
            help="When to print the table: always, never, or auto (unless -o tells a script).",
        ),
    ] = Summary.AUTO,
    quiet: Annotated[
        bool, option("--quiet", "-q", panel=_OURS, help="Print no table and no warnings.")
    ] = False,
    max_peak: MaxPeak = None,
    max_time: MaxTime = None,
    max_cpu_time: MaxCpuTime = None,
) -> None:
    """Run COMMAND inside a CPU and memory budget and report exactly what it used.

    The program's input, output, signals and exit status stay its own; the report goes to stderr.
    """
    given = (read_env_files(env_file) if env_file else {}) | parse_environment(tuple(env or ()))[0]
    limits = Limits(
        cpus=cpus,
        cpuset_cpus=None if cpuset_cpus is None else parse_cpuset(cpuset_cpus, cpus),
        cpu_shares=cpu_shares,
        memory_bytes=memory,
        memory_swap_bytes=memory_swap,
        memory_reservation_bytes=memory_reservation,
        memory_high_bytes=memory_high,
        pids=pids_limit,
        blkio_weight=blkio_weight,
        device_rates=parse_rates(
            device_read_bps, device_write_bps, device_read_iops, device_write_iops
        ),
        ulimits=tuple(Ulimit.parse(text) for text in ulimit or ()),
        timeout_ns=timeout,
        cpu_time_usec=None if cpu_time is None else -(-cpu_time // 1_000),
    )
    root_flags = root.RootFlags(
        rootfs=rootfs,
        image=image,
        platform=platform,
        volume=volume,
        mount=mount,
        tmpfs=tmpfs,
        shm_size=shm_size,
        read_only=read_only,
        entrypoint=entrypoint,
        hostname=hostname,
        add_host=add_host,
        network=network,
        init=init,
        security=security.SecurityFlags(
            harden=harden,
            cap_add=cap_add,
            cap_drop=cap_drop,
            security_opt=security_opt,
            privileged=privileged,
            device=device,
            device_cgroup_rule=device_cgroup_rule,
            gpus=gpus,
            ipc=ipc,
            pid=pid,
        ),
    )
    optional: dict[str, Any] = {"interval_ns": interval, "stop_signal": stop_signal}
    spec = RunSpec(
        command=tuple(command or ()),
        limits=limits,
        environment=given,
        environment_unset=parse_environment(tuple(env or ()))[1],
        user=user,
        workdir=workdir,
        venv=provide_venv(venv, requirements or (), pip or (), user=user),
        root=root_flags.build(),
        network=root_flags.network_name(),
        ports=root.parse_ports(publish),
        harden=root_flags.build_harden(),
        name=name,
        capture=Capture.FILE if detach and capture is Capture.NONE else capture,
        detach=detach,
        strict=strict,
        oom_continue=oom_continue,
        wait_all=wait_all,
        thread_hints=thread_hints,
        stop_timeout_ns=stop_timeout,
        **{key: value for key, value in optional.items() if value is not None},
    )
    if output is not None:
        from sandbox.report.export import check_export_path

        check_export_path(output, force=force)
    shown = not quiet and (
        summary is Summary.ALWAYS
        or (summary is Summary.AUTO and (output is None or sys.stderr.isatty()))
    )
    gates = make_gates(max_peak, max_time, max_cpu_time)
    raise CommandExit(
        execute(spec, output=output, force=force, shown=shown, quiet=quiet, gates=gates)
    )
