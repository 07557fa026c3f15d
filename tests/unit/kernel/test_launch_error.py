"""What a child's failure becomes: the right exit code, and a text of act, object and cause."""

from __future__ import annotations

import errno
import os
import resource
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import HostError, KernelError, LaunchError, SandboxError
from sandbox.kernel.birth import Failure, Step, find_candidates, read_failure
from sandbox.kernel.launch_error import hint_for_emptied, to_error
from sandbox.records.enclosure import Enclosure, InPlace
from sandbox.records.program import Program


def _error(
    step: Step, code: int, what: str = "", argv: tuple[str, ...] = ("tool",), **settings: str
) -> SandboxError:
    program = Program(argv=argv, environment={}, directory=settings.get("directory"))
    return to_error(Failure(step, code, what), program, [os.fsencode(what or argv[0])])


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOENT, errno.EPERM, 9999])
def test_every_failure_has_a_text_with_its_errno_and_a_code_of_ours(step: Step, code: int) -> None:
    what = f"{resource.RLIMIT_NOFILE} 1 2" if step is Step.RLIMIT else "/an/object"

    error = _error(step, code, what)

    assert error.exit_code in {125, 126, 127}
    assert str(error).startswith("cannot ")
    if step is not Step.EXEC:
        assert errno.errorcode.get(code, "EUNKNOWN" if step is Step.JOIN else str(code)) in str(
            error
        )


@pytest.mark.parametrize(
    ("step", "what", "kind", "code"),
    [
        (Step.JOIN, "/sys/fs/cgroup/x/cgroup.procs", KernelError, 125),
        (Step.AFFINITY, "0,1", HostError, 125),
        (Step.RLIMIT, f"{resource.RLIMIT_NOFILE} 1 2", HostError, 125),
        (Step.GROUPS, "1:1", LaunchError, 126),
        (Step.USER, "1:1", LaunchError, 126),
        (Step.DIRECTORY, "/root", LaunchError, 126),
        (Step.STDIO, "7", KernelError, 125),
    ],
)
def test_what_is_ours_is_125_and_what_is_the_programs_126(
    step: Step, what: str, kind: type[SandboxError], code: int
) -> None:
    error = _error(step, errno.EPERM, what)

    assert (type(error), error.exit_code) == (kind, code)


def test_a_command_in_one_word_is_recognised() -> None:
    error = _error(Step.EXEC, errno.ENOENT, argv=("python infer.py",))

    assert error.exit_code == 127
    assert "one quoted word" in (error.hint or "")


@pytest.mark.parametrize(
    ("names", "hint"), [(("python3",), "there is `python3` here"), ((), "is it")]
)
def test_python_is_told_to_be_python3_where_it_is(
    names: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    error = _error(Step.EXEC, errno.ENOENT, "absent/python", argv=("python",))

    assert (error.hint or "").startswith(hint)


def test_a_hidden_file_is_shown_by_a_command_that_has_the_flag() -> None:
    enclosure = Enclosure(hostname="x", in_place=InPlace(is_apart=True))

    hint = hint_for_emptied(enclosure, "/", "/run/absent.sh")

    assert hint == (
        "copy it to another place, or show it there: "
        "`sandbox run --harden -v /run/absent.sh:/run/absent.sh:ro …`"
    )


@pytest.mark.parametrize("name", ["debian:12", "localhost:5000/a/b:latest", "python:3.11-slim"])
def test_who_names_an_image_first_as_docker_does_is_told_the_flag(name: str) -> None:
    error = _error(Step.EXEC, errno.ENOENT, name, argv=(name,))

    assert error.hint == f"an image is named by a flag: `sandbox run --image {name} …`"


def test_a_missing_loader_is_told_from_a_missing_file(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(300))

    error = _error(Step.EXEC, errno.ENOENT, str(program), argv=(str(program),))

    assert error.exit_code == 126
    assert "loader" in (error.hint or "")


def test_a_relative_program_is_looked_for_in_its_own_directory(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/lost\n")

    there = _error(Step.EXEC, errno.ENOENT, "./script", ("./script",), directory=str(tmp_path))
    elsewhere = _error(Step.EXEC, errno.ENOENT, "./script", ("./script",), directory="/nowhere")

    assert (there.exit_code, elsewhere.exit_code) == (126, 127)


@given(
    step=st.sampled_from(Step),
    code=st.integers(0, 4000),
    what=st.binary(max_size=4000),
)
def test_a_report_is_read_as_it_was_written(step: Step, code: int, what: bytes) -> None:
    assert read_failure(struct.pack("=cBi", b"f", step, code) + what) == Failure(
        step, code, os.fsdecode(what)
    )


def test_no_report_is_no_failure() -> None:
    assert read_failure(b"") is None
    assert read_failure(b"r") is None


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        (b"./a", b"/x", (b"./a",)),
        (b"a", b"/x:/y", (b"/x/a", b"/y/a")),
        (b"a", b":/y:", (b"a", b"/y/a", b"a")),
        (b"a", None, (b"/bin/a", b"/usr/bin/a")),
    ],
)
def test_the_search_is_that_of_execvp(
    name: bytes, path: bytes | None, expected: tuple[bytes, ...]
) -> None:
    assert find_candidates(name, {} if path is None else {b"PATH": path}) == expected
