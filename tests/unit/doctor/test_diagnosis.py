"""The doctor as a whole: names, groups, what is usable, how it is shown."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.doctor.diagnosis import GROUPS, diagnose, select
from sandbox.errors import SpecError
from sandbox.records.codec import from_plain, to_plain
from sandbox.records.finding import Diagnosis, Finding, State
from sandbox.records.host import Mode
from sandbox.records.limits import LimitReport, LimitState
from sandbox.report.findings import render_checks, render_findings
from sandbox.spec import Limits

PACKAGE = Path(sandbox.__file__).parent
EVERY = [check for checks in GROUPS.values() for check in checks]


def test_names_are_unique_words_that_can_be_typed() -> None:
    names = [check.name for check in EVERY]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert all(check.question.endswith("?") for check in EVERY)


def test_every_check_answers_on_every_kind_of_host(host: Any, hybrid: Any) -> None:
    assert len(diagnose(host.facts()).findings) == len(EVERY)


def test_every_check_answers_without_a_group(host: Any) -> None:
    host.shut()
    host.remove("sys")

    assert len(diagnose(host.facts()).findings) == len(EVERY)


def test_findings_can_be_asked_for_by_name_and_by_group(host: Any) -> None:
    names = [finding.name for finding in diagnose(host.facts(), ("store", "cpu")).findings]

    assert names == ["cpu", "records", "space", "leftovers"]


def test_an_unknown_name_is_an_error_that_says_where_names_are() -> None:
    with pytest.raises(SpecError, match="no check `fan`") as caught:
        list(select(("cpu", "fan")))

    assert "--list-checks" in (caught.value.hint or "")


def test_a_diagnosis_survives_json(host: Any) -> None:
    diagnosis = diagnose(host.facts())

    assert from_plain(Diagnosis, to_plain(diagnosis)) == diagnosis


# --- how it is shown


def finding(name: str, state: State, why: str = "it is so", fix: str | None = None) -> Finding:
    return Finding(name=name, group="one" if name < "c" else "two", state=state, why=why, fix=fix)


def shown(*findings: Finding, **options: Any) -> str:
    diagnosis = Diagnosis(mode=Mode.UNIFIED, mode_reason="", findings=findings)
    settings = {"width": 60, "color": False, "unicode": True, **options}
    return render_findings(diagnosis, **settings)


def test_one_line_a_check_by_group() -> None:
    text = shown(finding("a", State.OK), finding("bee", State.SKIP), finding("c", State.OK))

    assert text == (
        "one\n  ✓ a    it is so\n  - bee  it is so\n\ntwo\n  ✓ c    it is so\n\n"
        "all is well: cgroup v2"
    )


def test_a_fix_is_never_wrapped_and_a_reason_always() -> None:
    fix = "sudo sh -c " + "'echo something long enough to be wrapped'"
    text = shown(finding("a", State.WARN, "words " * 20, fix))

    assert f"\n    $ {fix}\n" in text
    assert max(map(len, text.replace(fix, "").splitlines())) <= 60
    assert text.endswith("nothing fails, 1 warning: cgroup v2")


def test_what_fails_is_counted_last() -> None:
    text = shown(finding("a", State.FAIL), finding("b", State.FAIL), finding("c", State.WARN))

    assert text.splitlines()[-1] == "2 checks fail, 1 warning"


def test_quiet_shows_only_what_asks_for_something() -> None:
    text = shown(
        finding("a", State.OK), finding("b", State.WARN), finding("c", State.SKIP), quiet=True
    )

    assert text.splitlines()[:2] == ["one", "  ! b  it is so"]
    assert "✓" not in text
    assert shown(finding("a", State.OK), quiet=True) == "all is well: cgroup v2"


def test_without_unicode_the_marks_are_words() -> None:
    text = shown(*(finding("a", state) for state in State), unicode=False)

    assert text.isascii()
    assert [line.split()[0] for line in text.splitlines()[1:5]] == ["ok", "warn", "FAIL", "skip"]


def test_escapes_from_outside_cannot_command_a_terminal() -> None:
    text = shown(finding("a", State.WARN, "\033[2Jgone", "echo \033[2J"), color=True)

    assert "\033[2J" not in text


def test_the_list_of_checks_is_aligned() -> None:
    text = render_checks([("one", "long-name", "Is it?"), ("three", "b", "And that?")])

    assert text == "one    long-name  Is it?\nthree  b          And that?"


def test_every_check_that_a_hint_names_is_there() -> None:
    known = {check.name for check in EVERY} | GROUPS.keys()
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))

    named = set(re.findall(r"`sandbox doctor ([a-z-]+)`", sources)) - {"--list-checks"}
    named |= {
        LimitReport(name=field.name, asked="", state=LimitState.ENFORCED).check
        for field in fields(Limits)
    }

    assert named >= {"cgroup", "cpu", "energy"}
    assert named <= known
