"""Dockerfiles that cannot be built: each is one error with its file, its line and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.build.images import build_image
from sandbox.build.options import BuildOptions, Secret
from sandbox.errors import SandboxError, SpecError

BAD = [
    ("", 1, "no instruction"),
    ("# only this\n", 1, "no instruction"),
    ("RUN true\nFROM scratch\n", 1, "before the first FROM"),
    ("FROM scratch\nRUNN true\n", 2, "RUN"),
    ("FROM scratch\nCOPY a.txt\n", 2, "COPY needs `a.txt` to go somewhere"),
    ("FROM scratch\nCOPY nosuch /\n", 2, "`nosuch` is not in the build context"),
    ("FROM scratch\nCOPY *.none /\n", 2, "no source files"),
    ("FROM scratch\nCOPY a.txt b.txt /file\n", 2, "more than one source"),
    ("FROM scratch AS one\nCOPY --from=two a /\nFROM scratch AS two\nFROM one\n", 2, "from=two"),
    ("FROM scratch\nCOPY --from=5 a /\n", 2, "from=5"),
    ("FROM scratch\nCOPY --chmod=99999 a.txt /\n", 2, "is no mode"),
    ("FROM scratch\nCOPY --chown=nobody a.txt /\n", 2, "there is no user `nobody`"),
    ("FROM scratch\nCOPY --nosuch=1 a.txt /\n", 2, "--nosuch"),
    ("FROM scratch\nCOPY ../up /\n", 2, "is not in the build context"),
    ("FROM scratch\nCOPY out /\n", 2, "`out` is not in the build context"),
    ("FROM scratch\nCOPY hidden.key /\n", 2, "is not in the build context"),
    ("FROM scratch\nADD https://host/repository.git /\n", 2, "git"),
    ("FROM scratch\nENV A\n", 2, "ENV"),
    ("FROM scratch\nENV A=${B:?missing}\n", 2, "missing"),
    ("FROM scratch\nEXPOSE 70000\n", 2, "is no port"),
    ("FROM scratch\nSTOPSIGNAL SIGNOSUCH\n", 2, "is no signal"),
    ("FROM scratch\nSHELL /bin/sh\n", 2, "SHELL"),
    ("FROM scratch\nRUN <<EOF\ntrue\n", 2, "EOF"),
    ("FROM scratch\nRUN --mount=type=ssh true\n", 2, "SSH"),
    ("FROM scratch\nRUN --mount=type=cache true\n", 2, "nothing can be mounted at /"),
    ("FROM scratch\nRUN --security=insecure true\n", 2, "insecure"),
    ("FROM scratch\nRUN true\n", 2, "the image is empty"),
    ("FROM scratch\nONBUILD FROM scratch\n", 2, "ONBUILD"),
    ("FROM scratch\nUSER\n", 2, "USER"),
    ("FROM scratch\nWORKDIR $NOTHING\n", 2, "is empty"),
    ("FROM $NOTHING\n", 1, "no value"),
    ("FROM scratch AS 1st\n", 1, "1st"),
    ("FROM scratch\nCOPY a.txt /x\nCOPY b.txt /x/y/\n", 3, "`/x` is no directory"),
    ("FROM scratch\nCOPY a.txt /x\nWORKDIR /x\n", 3, "is no directory"),
    ("FROM scratch\nCOPY a.txt /dir\nCOPY nested /\n", 3, "cannot copy to `/dir`"),
    ("FROM scratch\nRUN --mount=type=bind,source=nosuch,target=/m true\n", 2, "nosuch"),
]


@pytest.fixture
def context(tmp_path: Path) -> Path:
    found = tmp_path / "context"
    for name in ("a.txt", "b.txt", "dir/inner/file", "nested/dir/file", "hidden.key"):
        path = found / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (found / ".dockerignore").write_text("*.key\n")
    (found / "out").symlink_to("/etc/passwd")
    return found


@pytest.mark.parametrize(("text", "line", "words"), BAD)
def test_a_bad_file_says_where(
    context: Path, tmp_path: Path, text: str, line: int, words: str
) -> None:
    (context / "Dockerfile").write_text(text)

    with pytest.raises(SandboxError) as raised:
        build_image(context, home=tmp_path / "home")

    assert str(raised.value).startswith(f"Dockerfile:{line}: ")
    assert words in str(raised.value)


def test_a_file_of_another_name_is_named(context: Path, tmp_path: Path) -> None:
    path = context / "other.Dockerfile"
    path.write_text("FROM scratch\nNOSUCH\n")

    with pytest.raises(SandboxError, match=rf"^{path}:2: "):
        build_image(context, path, home=tmp_path / "home")


def test_what_cannot_be_built_at_all(context: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(SpecError, match="is no directory"):
        build_image(context / "nosuch", home=home)
    with pytest.raises(SpecError, match=r"cannot read .*Dockerfile: No such file"):
        build_image(context, home=home)
    for address in ("https://host/x.git", "git@host:x", "git://host/x"):
        with pytest.raises(SpecError, match="is not on this machine"):
            build_image(Path(address), home=home)
    (context / "Dockerfile").write_text("FROM scratch AS one\n")
    with pytest.raises(SpecError, match="has no stage `two`"):
        build_image(context, options=BuildOptions(target="two"), home=home)
    with pytest.raises(SpecError, match="is not an image reference"):
        build_image(context, options=BuildOptions(tags=("UPPER",)), home=home)


@pytest.mark.parametrize("text", ["", "src=x", "id=", "id=a,src=b,env=C", "id=a,nosuch=1", "id"])
def test_what_is_no_secret(text: str) -> None:
    with pytest.raises(SpecError, match="secret"):
        Secret.parse(text)


@pytest.mark.parametrize(
    ("text", "path", "variable"),
    [
        ("id=a,src=b/c", Path("b/c"), None),
        ("source=b,id=a,type=file", Path("b"), None),
        ("id=a,env=B", None, "B"),
        ("type=env,id=A", None, "A"),
        ("id=a", Path("a"), None),
    ],
)
def test_secrets(text: str, path: Path | None, variable: str | None) -> None:
    secret = Secret.parse(text)

    assert (secret.path, secret.variable) == (path, variable)
