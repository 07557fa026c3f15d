"""The child's way into a root of its own: namespaces, mounts, the change of root, fewer privileges.

Nothing is imported and no name is looked up once the root has changed: what would be found then is
the root file system's, and not to be trusted.
"""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress

from sandbox.kernel import capabilities
from sandbox.kernel import mount_calls as calls
from sandbox.kernel.in_root import find_place
from sandbox.kernel.namespaces import NEW_CGROUP
from sandbox.kernel.protect import Say
from sandbox.records.enclosure import Enclosure, InPlace

_USUAL_UMASK = 0o022


class Entering:
    """What a child does between its birth in new namespaces and its exec."""

    def __init__(self, enclosure: Enclosure, user: int = 0) -> None:
        """Prepare what can be known before the fork; `user` is to have the terminal."""
        self._enclosure = enclosure
        self._terminal = None
        if enclosure.terminal is not None:
            from sandbox.kernel.own_terminal import OwnTerminal

            self._terminal = OwnTerminal(enclosure.terminal, user)
        self._workdir = os.fsencode(enclosure.workdir)
        self._keyring_call = capabilities.find_keyring_call(os.uname().machine)
        self._filter = None
        if enclosure.confinement.filter:
            from sandbox.kernel.seccomp import Filter

            self._filter = Filter(enclosure.confinement.filter)
        # On the host's root without a user namespace, a plain user holds nothing to give up.
        place = enclosure.in_place
        self._is_powerless = place is not None and not place.is_apart
        # Imported here, and only what is needed: nothing may be once the root has changed.
        if place is None:
            from sandbox.kernel import mounts

            self._mounts = mounts
        elif place.is_apart:
            from sandbox.kernel.in_place import mount_in_place

            self._mount_in_place = mount_in_place
        self._landlock = 0
        if enclosure.confinement.read_only_tree:
            from sandbox.kernel import landlock
            from sandbox.kernel.libc import landlock_abi

            self._landlock, self._confine = landlock_abi(), landlock.confine
        self._init = None
        if enclosure.has_init:
            from sandbox.kernel.first_process import Init

            self._init = Init(waits_for_all=enclosure.waits_for_all)

    def stand_in(self) -> None:
        """Leave the place of the first process to one of ours, if that was asked for.

        Raises:
            OSError: too many processes, or too little memory.
        """
        if self._init is not None:
            self._init.stand_in()

    def change_root(self, say: Say) -> None:
        """Mount everything and make it the root; `say` is told each step before it is taken.

        Raises:
            OSError: the kernel refuses.
        """
        enclosure = self._enclosure
        umask = os.umask(_USUAL_UMASK)  # stays in a root of its own
        say(b"namespaces")
        if enclosure.ids is not None:
            # Root inside, until the program's user is known.
            uid, gid = enclosure.ids.uids[0][0], enclosure.ids.gids[0][0]
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        if enclosure.in_place is not None:
            self._harden(enclosure.in_place, say)
            os.umask(umask)
            return
        calls.unshare(NEW_CGROUP)
        calls.make_mounts_private()
        calls.set_hostname(enclosure.hostname.encode())
        root_fd = self._mounts.mount_root(enclosure, say)
        self._mounts.mount_inside(root_fd, enclosure, say)
        say(b"working directory " + self._workdir)
        os.close(find_place(root_fd, self._workdir, directory=True))
        if enclosure.read_only:
            say(b"read-only root")
            self._mounts.make_read_only(root_fd)
        say(b"change of root")
        os.fchdir(root_fd)
        os.close(root_fd)
        calls.pivot_to_here()
        os.chdir("/")
        if self._terminal is not None:
            say(b"terminal")
            self._terminal.take()

    def _harden(self, place: InPlace, say: Say) -> None:
        """Protect the host's own root, where namespaces allow it; the program stays in it."""
        if place.is_apart:
            calls.make_mounts_private()
            self._mount_in_place(place, say)

    def bound_capabilities(self) -> None:
        """Limit what any program inside can ever hold; while there is the privilege to do so.

        Raises:
            OSError: the kernel refuses.
        """
        if self._keyring_call is not None:
            capabilities.leave_keyring(self._keyring_call)
        confinement = self._enclosure.confinement
        with suppress(PermissionError) if self._is_powerless else nullcontext():
            capabilities.bound(confinement.capabilities)
        if self._filter is not None and not confinement.no_new_privileges:
            self._filter.enforce()  # takes CAP_SYS_ADMIN, which the program need not have

    def settle(self) -> None:
        """Give up what the program shall not have, and go where it starts; as its user.

        Raises:
            OSError: the user may not enter the working directory.
        """
        confinement = self._enclosure.confinement
        capabilities.reduce(confinement.capabilities)
        if confinement.no_new_privileges:
            capabilities.forbid_new_privileges()
        # Not by chdir: /proc has links that lead out, by descriptors that are still open.
        top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        fd = calls.open_in(top, self._workdir, os.O_PATH | os.O_DIRECTORY)
        os.fchdir(fd)
        os.close(fd)
        os.close(top)

    def confine(self) -> None:
        """Take on what cannot be shaken off; as the program's user, and after all else.

        Raises:
            OSError: the kernel refuses.
        """
        confinement = self._enclosure.confinement
        if self._landlock:
            self._confine(self._landlock, confinement.writable, confinement.devices)
        if self._filter is not None and confinement.no_new_privileges:
            self._filter.enforce()
