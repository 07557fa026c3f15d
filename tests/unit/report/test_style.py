"""What a terminal is shown of a command."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from sandbox.report.style import command_line, printable


@given(st.lists(st.text(max_size=8) | st.sampled_from(["", "a b", "--x=1", "é", "$HOME", "~"])))
def test_a_command_is_shown_as_a_shell_would_take_it(command: list[str]) -> None:
    assert command_line(command) == printable(shlex.join(command))
