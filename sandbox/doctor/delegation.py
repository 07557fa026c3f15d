"""What a plain user gets from systemd and from the ranges of ids; root needs none of it."""

from __future__ import annotations

from sandbox.doctor.cgroup import DELEGATE
from sandbox.doctor.check import Answer, Check, ok, skip, warn
from sandbox.doctor.facts import Facts
from sandbox.kernel.place import CORE, WANTED
from sandbox.records.host import Mode

_HANDS_ON_CPU = 252
_ENOUGH_IDS = 65_536
_ROOT = "root makes groups without being handed any"


def _systemd(facts: Facts) -> Answer:
    sessions = facts.sessions
    if not sessions.is_booted:
        return skip("systemd does not run here")
    if sessions.version is None:
        return ok("it runs; its version does not show")
    if sessions.version < _HANDS_ON_CPU and not facts.is_root:
        return warn(
            f"version {sessions.version} hands users no CPU controller: {_HANDS_ON_CPU} does",
            DELEGATE,
        )
    return ok(f"version {sessions.version}")


def _user_manager(facts: Facts) -> Answer:
    sessions = facts.sessions
    if facts.is_root:
        return skip(_ROOT)
    if not sessions.is_booted:
        return skip("systemd does not run here")
    if sessions.manager_socket is not None:
        return ok(f"it can be asked for a group: {sessions.manager_socket}")
    answer = f"{sessions.user} has no user manager, so nobody can hand over a group"
    return warn(answer, f"sudo loginctl enable-linger {sessions.user}")


def _runtime_directory(facts: Facts) -> Answer:
    sessions = facts.sessions
    if facts.is_root:
        return skip(_ROOT)
    directory = sessions.runtime_directory
    if directory is None:
        return ok(f"XDG_RUNTIME_DIR is unset: /run/user/{sessions.uid} is used")
    if sessions.runtime_owner is None:
        return warn(f"XDG_RUNTIME_DIR is {directory}, which is not there", "unset XDG_RUNTIME_DIR")
    if sessions.runtime_owner != sessions.uid:
        return warn(
            f"XDG_RUNTIME_DIR is {directory}, which belongs to uid {sessions.runtime_owner} "
            "(as `su` without `-` leaves it): it is ignored",
            "unset XDG_RUNTIME_DIR",
        )
    return ok(f"{directory}, our own")


def _linger(facts: Facts) -> Answer:
    sessions = facts.sessions
    if facts.is_root or not sessions.is_booted:
        return skip(_ROOT if facts.is_root else "systemd does not run here")
    if sessions.is_lingering:
        return ok(f"the manager of {sessions.user} runs without a login")
    return warn(
        f"the manager of {sessions.user} ends with the last login, and detached runs with it",
        f"sudo loginctl enable-linger {sessions.user}",
    )


def _controllers(facts: Facts) -> Answer:
    sessions = facts.sessions
    if facts.is_root or facts.place.mode is Mode.HYBRID:
        return skip(_ROOT if facts.is_root else "v1 controllers cannot be handed to users safely")
    if sessions.controllers is None:
        return skip(f"the manager of {sessions.user} has no group here")
    given = [name for name in WANTED if name in sessions.controllers]
    missing = [name for name in WANTED if name not in sessions.controllers]
    if not missing:
        return ok(f"handed on: {', '.join(given)}")
    weight = "a limit is lacking" if set(missing) & set(CORE) else "stand-ins are used for the rest"
    return warn(
        f"handed on: {', '.join(given) or 'none'}; not {', '.join(missing)}: {weight}", DELEGATE
    )


def _subids(facts: Facts, count: int, file: str, option: str) -> Answer:
    use = "images of several users cannot be unpacked whole without root"
    user = facts.sessions.user
    if facts.is_root:
        return skip("root maps whatever ids it likes")
    if count < _ENOUGH_IDS:
        return warn(
            f"{user} has {count} ids in /etc/{file}, of {_ENOUGH_IDS}: {use}",
            f"sudo usermod {option} 100000-165535 {user}",
        )
    if not facts.sessions.maps_ids:
        return warn(
            f"newuidmap and newgidmap are not installed: {use}",
            "sudo apt install uidmap || sudo dnf install shadow-utils",
        )
    return ok(f"{count} ids")


def _subuids(facts: Facts) -> Answer:
    return _subids(facts, facts.sessions.subuids, "subuid", "--add-subuids")


def _subgids(facts: Facts) -> Answer:
    return _subids(facts, facts.sessions.subgids, "subgid", "--add-subgids")


CHECKS = (
    Check("systemd", "Does systemd run, and how new is it?", _systemd),
    Check("user-manager", "Can this user's systemd be asked for a group?", _user_manager),
    Check("runtime-directory", "Is XDG_RUNTIME_DIR this user's own?", _runtime_directory),
    Check("linger", "Does this user's systemd run without a login?", _linger),
    Check("delegated", "Which controllers does this user's systemd hand on?", _controllers),
    Check("subuids", "Has this user a range of user ids?", _subuids),
    Check("subgids", "Has this user a range of group ids?", _subgids),
)
