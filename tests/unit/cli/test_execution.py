"""What `sandbox run` makes of a run that has ended: its exit status."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.cli.execution import execute
from sandbox.engine import order
from sandbox.records.result import RunResult
from sandbox.spec import RunSpec


@pytest.mark.parametrize(("ended", "status"), [(0, 125), (3, 3)])
def test_a_result_that_cannot_be_written_is_our_failure_unless_the_program_failed(
    ended: int,
    status: int,
    tmp_path: Path,
    make_result: Callable[..., RunResult],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(order, "run", lambda *_: make_result(exit_code=ended))
    (tmp_path / "gone").mkdir()
    output = tmp_path / "gone/x.json"
    spec = RunSpec(command=("x",))

    assert execute(spec, output=output, force=False, shown=False, quiet=True) == ended

    output.unlink()
    output.parent.rmdir()  # while the program ran
    assert execute(spec, output=output, force=False, shown=False, quiet=True) == status
    assert f"cannot write {output}: " in capsys.readouterr().err
