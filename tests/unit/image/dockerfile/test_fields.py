"""Fields after expansion: what is expanded, what is not, and what they then have to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.fields import change_mode, check_signal, expand_fields, mounts_of
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.syntax import Instruction, Mount

VARIABLES = {"A": "1", "B": "two words", "E": ""}


def expanded(text: str, directive: str = "") -> Instruction:
    dockerfile = parse(f"{directive}FROM scratch\n{text}\n", "Dockerfile")
    (instruction,) = dockerfile.stages[0].instructions
    return expand_fields(instruction, VARIABLES, dockerfile)


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("ENV x=$A ${A}y='$A' z=\"$B\"", "pairs", (("x", "1"), ("1y", "$A"), ("z", "two words"))),
        ("ENV x $B  'c'", "pairs", (("x", "two words  c"),)),
        ("LABEL l.$A=a\\ b", "pairs", (("l.1", "a b"),)),
        ("WORKDIR /x/$A", "path", "/x/1"),
        ("USER $A:${NO:-g}", "user", "1:g"),
        ("VOLUME /$A /b", "paths", ("/1", "/b")),
        ('VOLUME ["/$B"]', "paths", ("/two words",)),
        ("STOPSIGNAL SIG${NO:-TERM}", "signal", "SIGTERM"),
        ("EXPOSE $A 80/UDP 443 443/tcp", "ports", ("1/tcp", "80/udp", "443/tcp")),
        ("EXPOSE 80-82/sctp", "ports", ("80/sctp", "81/sctp", "82/sctp")),
        ("EXPOSE 8080:80 127.0.0.1:1:2/udp", "ports", ("80/tcp", "2/udp")),
        ("COPY $A ${B} /$A/", "sources", ("1", "two words")),
        ("COPY --chown=$A:$A a /", "chown", "1:1"),
        ("COPY --chown=$E a /", "chown", None),
        ("COPY --chmod=75$A a /", "chmod", "751"),
        ("COPY --exclude=$A a /", "excludes", ("$A",)),
        ("ADD https://h/$A /$A", "sources", ("https://h/1",)),
        (
            "ADD --checksum=sha256:" + "0" * 63 + "$A https://h/ /",
            "checksum",
            "sha256:" + "0" * 63 + "1",
        ),
        # The commands are for others to read.
        ("RUN echo $A", "command", syntax.Command(words=("echo $A",), is_shell=True)),
        ('CMD ["$A"]', "command", syntax.Command(words=("$A",), is_shell=False)),
        ('ENTRYPOINT ["$A"]', "command", syntax.Command(words=("$A",), is_shell=False)),
        ('SHELL ["$A"]', "words", ("$A",)),
        ("HEALTHCHECK CMD $A", "test", ("CMD-SHELL", "$A")),
        ("ONBUILD RUN $A", "expression", "RUN $A"),
        ("MAINTAINER $A", "name", "$A"),
    ],
)
def test_fields_are_expanded(text: str, field: str, expected: object) -> None:
    assert getattr(expanded(text), field) == expected


def test_all_values_of_one_env_see_what_was_before_it() -> None:
    env = expanded("ENV A=9 x=$A")
    assert isinstance(env, syntax.Env)
    assert env.pairs == (("A", "9"), ("x", "1"))


def test_the_escape_directive_holds_for_expansion() -> None:
    env = expanded("ENV x=`$A\\", "# escape=`\n")
    assert isinstance(env, syntax.Env)
    assert env.pairs == (("x", "$A\\"),)


def test_documents_are_expanded_unless_quoted() -> None:
    plain, quoted = (
        expanded(f"COPY <<{word} /e\n\t\"$A\" '${{A}}' \\$A\nE") for word in ("-E", "-'E'")
    )
    assert isinstance(plain, syntax.Copy)
    assert isinstance(quoted, syntax.Copy)
    assert plain.heredocs[0].content == "\"1\" '1' $A\n"
    assert quoted.heredocs[0].content == "\"$A\" '${A}' \\$A\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ENV x=${NO:?needed}", "NO: needed"),
        ("ENV $E=x", "the name is empty after its variables were replaced"),
        ("WORKDIR $E", "the path is empty after its variables were replaced"),
        ("USER ${E}", "the user is empty after its variables were replaced"),
        ("VOLUME $E", "the path is empty after its variables were replaced"),
        ("STOPSIGNAL SIGX$A", "`SIGX1` is no signal"),
        ("EXPOSE 0", "`0` is no port"),
        ("EXPOSE 70000", "`70000` is no port"),
        ("EXPOSE 9-8", "`9-8` is no port"),
        ("EXPOSE 80/icmp", "`80/icmp` is no port"),
        ("EXPOSE $B", "`two` is no port"),
        ("COPY --chmod=8 a /", "`--chmod=8` is no mode"),
        ("COPY --chmod=17777 a /", "`--chmod=17777` is no mode"),
        ("COPY --chmod=u*x a /", "`--chmod=u*x` is no mode"),
        ("COPY ${NO:-https://h/a} /", "COPY does not fetch `https://h/a`"),
        (
            "ADD ${NO:-git@h:a.git} /",
            "ADD does not clone git repositories: `git@h:a.git`",
        ),
        ("ADD --checksum=$A https://h/a /", "`--checksum=1` is no digest"),
        ("COPY <<E /e\na\n${x\nb\nE", "cannot expand `${x`: `\\n` is not known after"),
        ("COPY <<E /e\na\n${x:-\nb\nE", "cannot expand `b`: `}` is missing at its end"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(text: str, what: str) -> None:
    with pytest.raises(SpecError, match=r".") as error:
        expanded(text)
    assert str(error.value).startswith(f"Dockerfile:2: {what}")


def mounts(text: str) -> tuple[Mount, ...]:
    dockerfile = parse(f"FROM scratch\nRUN {text} x\n", "Dockerfile")
    (run,) = dockerfile.stages[0].instructions
    assert isinstance(run, syntax.Run)
    return mounts_of(run, VARIABLES, dockerfile)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("target=/a", Mount(kind="bind", target="/a", read_only=True)),
        ("type=bind,rw,dst=/a", Mount(kind="bind", target="/a", read_only=False)),
        (
            "from=b,src=/s,destination=/$A,readwrite=false",
            Mount(kind="bind", target="/1", source="/s", from_stage="b", read_only=True),
        ),
        ("type=cache,target=/a", Mount(kind="cache", target="/a", read_only=False)),
        (
            "type=Cache,target=a,id=i-$A,sharing=LOCKED,mode=0750,uid=$A,gid=2,ro",
            Mount(
                kind="cache",
                target="a",
                id="i-1",
                sharing="locked",
                mode=0o750,
                uid=1,
                gid=2,
                read_only=True,
            ),
        ),
        (
            "type=tmpfs,target=/a,size=64m",
            Mount(kind="tmpfs", target="/a", size_bytes=64 << 20, read_only=False),
        ),
        (
            "type=secret,id=key,required,env=KEY",
            Mount(kind="secret", id="key", required=True, env="KEY", read_only=True),
        ),
        (
            '"type=bind","target=/a,b"',
            Mount(kind="bind", target="/a,b", read_only=True),
        ),
    ],
)
def test_mounts(text: str, expected: Mount) -> None:
    flag = f"'--mount={text}'" if '"' in text else f"--mount={text}"
    if '"' in text:
        flag = "--mount='" + text + "'"
    assert mounts(flag) == (expected,)


def test_a_mount_is_judged_once_its_variables_are_known() -> None:
    with pytest.raises(SpecError, match=r"^Dockerfile:2: .*`type=1` is not known"):
        mounts("--mount=type=$A,target=/a")


@pytest.mark.parametrize(
    ("text", "mode", "is_directory", "expected"),
    [
        ("755", 0o600, False, 0o755),
        ("0644", 0o777, True, 0o644),
        ("4711", 0, False, 0o4711),
        ("u+x", 0o644, False, 0o744),
        ("+x", 0o644, False, 0o755),
        ("a-w", 0o666, False, 0o444),
        ("go=", 0o777, False, 0o700),
        ("u=rwX,go=rX", 0o600, False, 0o644),
        ("u=rwX,go=rX", 0o700, False, 0o755),
        ("u=rwX,go=rX", 0o600, True, 0o755),
        ("g=u", 0o640, False, 0o660),
        ("o+g", 0o650, False, 0o655),
        ("u+s,+t", 0o755, False, 0o5755),
        ("ug-s", 0o6755, False, 0o755),
        ("u=rw-x+x", 0o000, False, 0o700),
        ("u+x,u-x", 0o644, False, 0o644),
    ],
)
def test_modes(text: str, mode: int, expected: int, *, is_directory: bool) -> None:
    assert change_mode(text, mode, is_directory=is_directory) == expected


@given(st.integers(0, 0o7777), st.sampled_from("ugoa"), st.sampled_from("rwx"))
def test_what_is_added_can_be_taken_away(mode: int, who: str, what: str) -> None:
    added = change_mode(f"{who}+{what}", mode, is_directory=False)
    assert added & mode == mode
    removed = change_mode(f"{who}-{what}", added, is_directory=False)
    assert change_mode(f"{who}-{what}", mode, is_directory=False) == removed


@pytest.mark.parametrize("text", ["15", "SIGTERM", "term", "SIGRTMIN+3", "rtmax-1", "9", "64"])
def test_signals(text: str) -> None:
    assert check_signal(text) == text


@pytest.mark.parametrize("text", ["", "0", "65", "-1", "1.0", "SIG", "SIGNONE", "RTMIN+", "٣"])
def test_what_is_no_signal(text: str) -> None:
    with pytest.raises(SpecError, match="is no signal"):
        check_signal(text)
