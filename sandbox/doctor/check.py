"""What a check is, and the four answers that it can give."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.doctor.facts import Facts
from sandbox.records.finding import Finding, State
from sandbox.records.light import dataclass


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a check has to say; see `Finding`."""

    state: State
    why: str
    fix: str | None = None


@dataclass(frozen=True)
class Check:
    """One question to the facts: the same facts always get the same answer."""

    name: str
    question: str
    """One line for `--list-checks`."""
    judge: Callable[[Facts], Answer]

    def find(self, group: str, facts: Facts) -> Finding:
        """Return the answer as a finding."""
        answer = self.judge(facts)
        return Finding(
            name=self.name, group=group, state=answer.state, why=answer.why, fix=answer.fix
        )


def ok(why: str) -> Answer:
    """Answer that all is well."""
    return Answer(state=State.OK, why=why)


def warn(why: str, fix: str | None = None) -> Answer:
    """Answer that something is weaker or noisier than it could be."""
    return Answer(state=State.WARN, why=why, fix=fix)


def fail(why: str, fix: str | None = None) -> Answer:
    """Answer that a limit cannot be enforced, or nothing recorded."""
    return Answer(state=State.FAIL, why=why, fix=fix)


def skip(why: str) -> Answer:
    """Answer that it cannot be told, or plays no part here."""
    return Answer(state=State.SKIP, why=why)


def boot_with(argument: str, tool: str | None) -> str | None:
    """Return the commands that add an argument to the kernel's command line, if they are known."""
    if tool == "grubby":
        return f"sudo grubby --update-kernel=ALL --args={argument} && sudo reboot"
    if tool == "grub":
        line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {argument}"'
        return f"echo '{line}' | sudo tee -a /etc/default/grub && sudo update-grub && sudo reboot"
    return None
