"""The grammar of `/proc`: bytes or text in, integers out; no file is opened here.

Every function raises KernelError for content that its file cannot have, and nothing else. A key
that a kernel leaves out is None or missing, never 0.
"""

from __future__ import annotations

from sandbox.kernel.parse import grammar, to_bytes, to_number
from sandbox.records.light import dataclass
from sandbox.records.result import NetworkIo

_KIB = 1024
_PID_STAT_FIELDS_MIN = 22  # behind the name, up to the resident set

# Boards write numbers instead of a name; these are the cores that they and the clouds use.
_ARM_CORES = {
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77",
    0xD0E: "Cortex-A76AE",
    0xD40: "Neoverse-V1",
    0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE",
    0xD44: "Cortex-X1",
    0xD49: "Neoverse-N2",
    0xD4F: "Neoverse-V2",
    0xC07: "Cortex-A7",
    0xC09: "Cortex-A9",
    0xC0F: "Cortex-A15",
}
_ARM_LIMITED = 0x41


@dataclass(frozen=True, kw_only=True)
class CpuTicks:
    """CPU time of the whole host since boot, in ticks of `os.sysconf("SC_CLK_TCK")` a second."""

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int | None
    """Time in which a hypervisor ran somebody else; None on kernels that do not count it."""
    cpus: int
    """CPUs that are online."""

    @property
    def docker_total(self) -> int:
        """Return the sum of the first seven fields: docker's system time, without steal."""
        return (
            self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq
        )


@grammar("/proc/stat")
def parse_stat(data: bytes | str) -> CpuTicks:
    """Return the host's CPU time and its number of online CPUs."""
    lines = to_bytes(data).splitlines()
    name, *words = lines[0].split()
    if name != b"cpu":
        raise ValueError(lines[0])
    ticks = [to_number(word) for word in words]
    user, nice, system, idle, iowait, irq, softirq = ticks[:7]
    return CpuTicks(
        user=user,
        nice=nice,
        system=system,
        idle=idle,
        iowait=iowait,
        irq=irq,
        softirq=softirq,
        steal=ticks[7] if len(ticks) > 7 else None,  # noqa: PLR2004 - the eighth field
        cpus=sum(1 for line in lines[1:] if line[:3] == b"cpu" and line[3:4].isdigit()),
    )


@grammar("/proc/meminfo")
def parse_meminfo(data: bytes | str) -> dict[str, int]:
    """Return the values of `/proc/meminfo` in bytes, those without a unit as they are."""
    values = {}
    for line in to_bytes(data).splitlines():
        key, _, rest = line.partition(b":")
        number, *unit = rest.split()
        if key.split() != [key] or unit not in ([], [b"kB"]):
            raise ValueError(line)
        values[key.decode("ascii")] = to_number(number) * (_KIB if unit else 1)
    return values


@dataclass(frozen=True, kw_only=True)
class PidStat:
    """One process, of `/proc/PID/stat`."""

    pid: int
    name: str
    """At most 15 bytes of the program's name, whatever characters it has."""
    state: str
    parent: int
    process_group: int
    session: int
    user_ticks: int
    system_ticks: int
    threads: int
    start_ticks: int
    """Since boot; with the pid it names a process for good."""
    resident_pages: int


@grammar("/proc/PID/stat")
def parse_pid_stat(data: bytes | str) -> PidStat:
    """Return one process; its name may hold blanks and parentheses, so the last one ends it."""
    head, closed, tail = to_bytes(data).rpartition(b")")
    pid, opened, name = head.partition(b" (")
    fields = tail.split()
    if not closed or not opened or len(fields) < _PID_STAT_FIELDS_MIN:
        raise ValueError(data)
    # A parent or session outside our PID namespace is 0; a process that is just being reaped has
    # -1 for its process group and session.
    signed = [_signed(field) for field in fields[1:4]]
    numbers = [to_number(fields[index]) for index in (11, 12, 17, 19, 21)]
    return PidStat(
        pid=to_number(pid),
        name=name.decode("utf-8", "surrogateescape"),
        state=fields[0].decode("ascii"),
        parent=signed[0],
        process_group=signed[1],
        session=signed[2],
        user_ticks=numbers[0],
        system_ticks=numbers[1],
        threads=numbers[2],
        start_ticks=numbers[3],
        resident_pages=numbers[4],
    )


def _signed(word: bytes) -> int:
    return -to_number(word[1:]) if word.startswith(b"-") else to_number(word)


@grammar("/proc/PID/io")
def parse_pid_io(data: bytes | str) -> dict[str, int]:
    """Return `rchar wchar syscr syscw read_bytes write_bytes cancelled_write_bytes`."""
    values = {}
    for line in to_bytes(data).splitlines():
        key, value = line.split(b": ")
        values[key.decode("ascii")] = to_number(value.strip())
    return values


@grammar("/proc/cpuinfo")
def parse_cpu_model(data: bytes | str) -> str | None:
    """Return what the CPU calls itself, or None if it does not say.

    x86 has a model name. Arm boards give numbers, which are turned into the core's name; a big
    and a little kind of core are both named.
    """
    found: dict[bytes, list[bytes]] = {}
    for line in to_bytes(data).splitlines():
        key, colon, value = line.partition(b":")
        if colon and value.strip():
            found.setdefault(key.strip(), []).append(value.strip())
    for key in (b"model name", b"cpu model", b"uarch", b"cpu"):
        if key in found:
            return found[key][0].decode("utf-8", "replace")
    if b"CPU part" in found and b"CPU implementer" in found:
        pairs = zip(found[b"CPU implementer"], found[b"CPU part"], strict=False)
        return " + ".join(dict.fromkeys(_arm_core(maker, part) for maker, part in pairs))
    for key in (b"Hardware", b"Processor", b"Model"):
        if key in found:
            return found[key][0].decode("utf-8", "replace")
    return None


def _arm_core(maker: bytes, part: bytes) -> str:
    maker_number, part_number = int(maker, 16), int(part, 16)
    if maker_number == _ARM_LIMITED and part_number in _ARM_CORES:
        return _ARM_CORES[part_number]
    return f"Arm core {maker_number:#04x}/{part_number:#05x}"


@dataclass(frozen=True, kw_only=True)
class LoadAverage:
    """How many tasks ran or waited for the disk, averaged over 1, 5 and 15 minutes."""

    one: float
    five: float
    fifteen: float
    running: int
    """Runnable tasks at this moment, the reader included."""
    tasks: int


@grammar("/proc/loadavg")
def parse_loadavg(data: bytes | str) -> LoadAverage:
    """Return the host's load."""
    one, five, fifteen, tasks, newest = to_bytes(data).split()
    running, _, all_tasks = tasks.partition(b"/")
    to_number(newest)
    return LoadAverage(
        one=_to_fraction(one),
        five=_to_fraction(five),
        fifteen=_to_fraction(fifteen),
        running=to_number(running),
        tasks=to_number(all_tasks),
    )


def _to_fraction(word: bytes) -> float:
    whole, _, rest = word.partition(b".")
    to_number(whole + rest)  # float() alone would take signs, exponents and `nan`
    return float(word)


@grammar("/proc/PID/status")
def find_status(data: bytes | str, key: str) -> str | None:
    """Return one line of `/proc/PID/status`, such as `Cpus_allowed_list`, or None if it lacks."""
    wanted = to_bytes(key) + b":"
    for line in to_bytes(data).splitlines():
        if line.startswith(wanted):
            return line[len(wanted) :].strip().decode("utf-8", "surrogateescape")
    return None


@dataclass(frozen=True, kw_only=True)
class InterfaceCounters:
    """What one network interface has counted since it was made."""

    received_bytes: int
    received_packets: int
    received_errors: int
    received_drops: int
    sent_bytes: int
    sent_packets: int
    sent_errors: int
    sent_drops: int


@grammar("/proc/PID/net/dev")
def parse_net_dev(data: bytes | str) -> dict[str, InterfaceCounters]:
    """Return the counters of each network interface, `lo` included."""
    interfaces = {}
    for line in to_bytes(data).splitlines()[2:]:  # two lines of headings
        name, colon, numbers = line.rpartition(b":")
        if not colon or not name.strip():
            raise ValueError(line)
        values = [to_number(word) for word in numbers.split()]
        interfaces[name.strip().decode("utf-8", "surrogateescape")] = InterfaceCounters(
            received_bytes=values[0],
            received_packets=values[1],
            received_errors=values[2],
            received_drops=values[3],
            sent_bytes=values[8],
            sent_packets=values[9],
            sent_errors=values[10],
            sent_drops=values[11],
        )
    return interfaces


def parse_interfaces(data: bytes) -> tuple[NetworkIo, ...]:
    """Return every interface but the loopback.

    Raises:
        KernelError: it is not a `/proc/PID/net/dev`.
    """
    return tuple(
        NetworkIo(
            name=name,
            rx_bytes=counters.received_bytes,
            tx_bytes=counters.sent_bytes,
            rx_packets=counters.received_packets,
            tx_packets=counters.sent_packets,
            rx_errors=counters.received_errors,
            tx_errors=counters.sent_errors,
            rx_dropped=counters.received_drops,
            tx_dropped=counters.sent_drops,
        )
        for name, counters in parse_net_dev(data).items()
        if name != "lo"
    )
