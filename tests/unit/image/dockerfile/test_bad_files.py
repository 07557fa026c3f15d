"""Files that cannot be meant: the place, what is wrong, and what to do about it."""

from __future__ import annotations

import pytest

from sandbox.errors import SpecError
from sandbox.image.dockerfile.parse import parse, parse_trigger

F = "FROM scratch\n"
CLONE = "clone it before the build and COPY it, or `RUN git clone …`"

KNOWN = (
    "FROM ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL"
    " STOPSIGNAL USER VOLUME WORKDIR"
)

BAD = [
    # The file.
    ("", 1, "there is no instruction in it", "begin with `FROM IMAGE`"),
    ("# only\n\n# comments\n", 1, "there is no instruction in it", "begin with `FROM IMAGE`"),
    ("ARG A\n", 1, "there is no FROM in it", "begin with `FROM IMAGE`"),
    (f"{F}RUN a\0b\n", 2, "a NUL byte: this is no text", None),
    (
        "F\0R\0",
        1,
        "a NUL byte: this is no text",
        "save it as UTF-8",
    ),
    (
        "# escape=x\n",
        1,
        "`x` cannot be the escape character",
        "it is `\\` or the backquote",
    ),
    (
        f"# escape=`\n# escape=`\n{F}",
        2,
        "the directive `escape` is there twice",
        "leave one of them",
    ),
    (f"{F}\\", 2, "an instruction is missing", "the line only goes on"),
    # Instructions.
    (f"{F}RUM a\n", 2, "`RUM` is no instruction", "is `RUN` meant?"),
    (f"{F}\n\nentry a\n", 4, "`ENTRY` is no instruction", "is `ENTRYPOINT` meant?"),
    (
        f"{F}RUN a \\\n # b\n\nb\nFOO",
        6,
        "`FOO` is no instruction",
        f"known are: {KNOWN}",
    ),
    (
        "ARG A\nRUN a\nFROM a",
        2,
        "RUN stands before the first FROM",
        "begin with `FROM IMAGE`; only ARG may stand before it",
    ),
    (
        f"{F}RUN <<E\na\n",
        2,
        "the heredoc `<<E` has no end",
        "`E` has to stand on a line of its own",
    ),
    # FROM.
    (
        "FROM\n",
        1,
        "FROM needs an image, and may give the stage a name",
        "write `FROM IMAGE AS NAME`",
    ),
    (
        "FROM a b\n",
        1,
        "FROM needs an image, and may give the stage a name",
        "write `FROM IMAGE AS NAME`",
    ),
    (
        "FROM a AS 1b\n",
        1,
        "`1b` cannot be a stage's name",
        "it begins with a letter and goes on with letters, digits, `-`, `_` and `.`",
    ),
    ("FROM --plat=x a\n", 1, "FROM has no flag `--plat`", "is `--platform` meant?"),
    ("FROM --platform a\n", 1, "`--platform` needs a value", "write `--platform=VALUE`"),
    (
        "FROM --platform=a --platform=b a\n",
        1,
        "`--platform` is there twice",
        "leave one of them",
    ),
    # RUN, CMD and the like.
    (f"{F}RUN\n", 2, "RUN needs a command", None),
    (f"{F}RUN []\n", 2, "RUN needs a command", None),
    (
        f'{F}RUN ["a", 1]\n',
        2,
        "a JSON array of an instruction holds texts only",
        'such as `["echo", "1"]`',
    ),
    (f"{F}RUN --network=bridge a\n", 2, "`--network=bridge` is not known", None),
    (
        f"{F}RUN --security=insecure a\n",
        2,
        "`--security=insecure` is not given to builds",
        "leave it out: RUN is always confined",
    ),
    (f"{F}RUN --device=x a\n", 2, "`--device=x` is not given to builds", None),
    (f"{F}CMD --help\n", 2, "CMD has no flag `--help`", "it has none at all"),
    (
        f"{F}SHELL bash -c\n",
        2,
        "SHELL needs a JSON array",
        'write such as `SHELL ["/bin/bash", "-c"]`',
    ),
    (
        f"{F}HEALTHCHECK a\n",
        2,
        "HEALTHCHECK knows no `a`",
        "write `HEALTHCHECK CMD command` or `HEALTHCHECK NONE`",
    ),
    (f"{F}HEALTHCHECK CMD\n", 2, "HEALTHCHECK needs a command after CMD", None),
    (f"{F}HEALTHCHECK NONE a\n", 2, "HEALTHCHECK NONE takes nothing more", None),
    (
        f"{F}HEALTHCHECK --interval=5 CMD a\n",
        2,
        "`--interval=5` is no duration",
        "write such as `30s`, `1m30s` or `500ms`",
    ),
    (
        f"{F}HEALTHCHECK --timeout=1us CMD a\n",
        2,
        "`--timeout=1us` cannot be used",
        "the least is `1ms`",
    ),
    (
        f"{F}HEALTHCHECK --retries=-1 CMD a\n",
        2,
        "`--retries=-1` is no number from 0",
        "write such as `3`",
    ),
    # Mounts.
    (
        f"{F}RUN --mount=type=ssh a\n",
        2,
        "`--mount=type=ssh`: keys of an SSH agent are not forwarded",
        "fetch before the build, or pass one key with `--mount=type=secret`",
    ),
    (
        f"{F}RUN --mount=type=cash,target=/a a\n",
        2,
        "`--mount=type=cash,target=/a`: `type=cash` is not known",
        "is `cache` meant?",
    ),
    (
        f"{F}RUN --mount=type=cache,tarjet=/a a\n",
        2,
        "`--mount=type=cache,tarjet=/a`: `tarjet` is no key",
        "is `target` meant?",
    ),
    (
        f"{F}RUN --mount=type=cache,target a\n",
        2,
        "`--mount=type=cache,target`: `target` needs a value",
        "write `target=VALUE`",
    ),
    (
        f"{F}RUN --mount=type=tmpfs,target=/a,uid=1 a\n",
        2,
        "`--mount=type=tmpfs,target=/a,uid=1`: `uid` does not belong to a tmpfs mount",
        "allowed are readonly, readwrite, size, target, type",
    ),
    (
        f"{F}RUN --mount=type=secret a\n",
        2,
        "`--mount=type=secret`: it does not say which secret",
        "write `id=NAME`",
    ),
    (
        f"{F}RUN --mount=from=$A,target=/a a\n",
        2,
        "`--mount=from=$A,target=/a`: `from` takes no variables",
        "make a stage of it: `FROM $NAME AS other`, and write `from=other`",
    ),
    (
        f"{F}RUN --mount=type=cache,target=/a,mode=9 a\n",
        2,
        "`--mount=type=cache,target=/a,mode=9`: `mode=9` cannot be used",
        "write it octal, such as 0755",
    ),
    (
        f"{F}RUN --mount=type=cache,target=/a,sharing=all a\n",
        2,
        "`--mount=type=cache,target=/a,sharing=all`: `sharing=all` is not known",
        None,
    ),
    (
        f"{F}RUN --mount=target=/a,ro=maybe a\n",
        2,
        "`--mount=target=/a,ro=maybe`: `readonly=maybe` is neither true nor false",
        "write `readonly`",
    ),
    (
        f"{F}RUN --mount=type=tmpfs,target=/a,size=big a\n",
        2,
        "`--mount=type=tmpfs,target=/a,size=big`: `size=big`: `big` is not a size",
        "write a number with b, k, m or g, such as `512m` or `2g`",
    ),
    # COPY and ADD.
    (f"{F}COPY --form=a b c\n", 2, "COPY has no flag `--form`", "is `--from` meant?"),
    (f"{F}COPY a\n", 2, "COPY needs `a` to go somewhere", "write `COPY SOURCE… DESTINATION`"),
    (
        f"{F}COPY --parents=1 a b\n",
        2,
        "`--parents=1` is neither true nor false",
        "write `--parents`",
    ),
    (
        f"{F}COPY --from=$A a b\n",
        2,
        "`--from=$A` takes no variables",
        "make a stage of it: `FROM $NAME AS other`, and write `--from=other`",
    ),
    (
        f"{F}COPY https://h/a /\n",
        2,
        "COPY does not fetch `https://h/a`",
        "ADD fetches http:// and https://",
    ),
    (
        f"{F}ADD git@github.com:a/b.git /\n",
        2,
        "ADD does not clone git repositories: `git@github.com:a/b.git`",
        CLONE,
    ),
    (
        f"{F}ADD https://h/a.git#v1:sub /\n",
        2,
        "ADD does not clone git repositories: `https://h/a.git#v1:sub`",
        CLONE,
    ),
    (
        f"{F}ADD --keep-git-dir=true a /\n",
        2,
        "ADD does not clone git repositories: `--keep-git-dir`",
        CLONE,
    ),
    (
        f"{F}ADD --checksum=md5:1 https://h/a /\n",
        2,
        "`--checksum=md5:1` is no digest",
        "it is `sha256:` and 64 digits",
    ),
    (
        f"{F}ADD --checksum=sha256:{'0' * 64} a /\n",
        2,
        "`--checksum` is for one address",
        "write an ADD with http:// or https:// for it",
    ),
    # Names and values.
    (f"{F}ENV\n", 2, "ENV needs a name and a value", None),
    (f"{F}ENV a\n", 2, "ENV needs a value for `a`", "write `ENV a=VALUE`"),
    (f"{F}ENV a=b c\n", 2, "`c` has no `=`", 'write `ENV NAME="a value" OTHER=value`'),
    (f"{F}LABEL =b\n", 2, "a name is missing before `=b`", None),
    (f"{F}ARG\n", 2, "ARG needs a name", None),
    (f"{F}ARG =b\n", 2, "a name is missing before `=b`", None),
    (f"{F}EXPOSE\n", 2, "EXPOSE needs a port", None),
    (f"{F}VOLUME\n", 2, "VOLUME needs paths that are not empty", None),
    (f'{F}VOLUME [" "]\n', 2, "VOLUME needs paths that are not empty", None),
    (f"{F}WORKDIR\n", 2, "WORKDIR needs a path", None),
    (f"{F}USER\n", 2, "USER needs a user", None),
    (f"{F}STOPSIGNAL\n", 2, "STOPSIGNAL needs a signal", None),
    (f"{F}ONBUILD\n", 2, "ONBUILD needs an instruction", None),
    (f"{F}ONBUILD ONBUILD RUN a\n", 2, "ONBUILD cannot hold ONBUILD", None),
    (f"{F}ONBUILD FROM a\n", 2, "ONBUILD cannot hold FROM", None),
    (f"{F}ONBUILD RUM a\n", 2, "`RUM` is no instruction", "is `RUN` meant?"),
]


@pytest.mark.parametrize(("text", "line", "what", "hint"), BAD)
def test_a_bad_file_is_refused_with_its_place(
    text: str, line: int, what: str, hint: str | None
) -> None:
    with pytest.raises(SpecError, match=r".") as error:
        parse(text, "dir/Dockerfile")

    assert str(error.value) == f"dir/Dockerfile:{line}: {what}"
    if hint is not None:
        assert error.value.hint == hint


@pytest.mark.parametrize(
    "text", ["", "RUN a\nRUN b", "FROM a", "ONBUILD RUN a", "RUM a", "RUN <<E"]
)
def test_a_bad_trigger_is_refused_at_its_from(text: str) -> None:
    with pytest.raises(SpecError, match=r"Dockerfile:3: the image's `ONBUILD "):
        parse_trigger(text, "Dockerfile", 3)


def test_a_file_that_is_no_dockerfile_is_not_read_to_its_end() -> None:
    with pytest.raises(SpecError, match="larger than 16 MiB"):
        parse(bytes(17 << 20), "Dockerfile")
