"""What holds for every file: errors of ours only, and what is printed is read back."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.dockerfile import syntax
from sandbox.image.dockerfile.fields import expand_fields, mounts_of
from sandbox.image.dockerfile.parse import parse
from sandbox.image.dockerfile.scope import declare, global_variables
from sandbox.image.dockerfile.stages import plan_stages
from sandbox.image.dockerfile.syntax import Command, Dockerfile, Heredoc, Instruction, Stage

KEYWORDS = (
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL STOPSIGNAL"
    " USER VOLUME WORKDIR"
)
PIECES = st.sampled_from(
    [
        *("FROM scratch AS a", *(f"\n{keyword} " for keyword in KEYWORDS.split())),
        *("\n", "\r\n", "\n# ", "\\", "\\\n", "`", "# escape=`\n", "\ufeff", " ", "\t"),
        *(" --mount=type=", "bind", "cache", ",target=", " --from=", "--chmod=", " --interval="),
        *("<<E", "<<-'E' ", "\nE\n", "$", "${a", ":-", "}", "a=", '"', "'", "=", ",", "#"),
        *('["', '", "', '"]', "[", "]", "1", "80/tcp", "/", "*", "é"),
    ]
)
FILES = st.lists(PIECES, max_size=30).map("".join)


def exercise(data: bytes | str) -> None:
    """Do all that can be done with a file without a file system."""
    dockerfile = parse(data, "Dockerfile")
    outside = global_variables(dockerfile, {}, {"TARGETARCH": "amd64"})
    plan_stages(dockerfile, outside)
    for stage in dockerfile.stages:
        for instruction in stage.instructions:
            expand_fields(instruction, outside, dockerfile)
            if isinstance(instruction, syntax.Run):
                mounts_of(instruction, outside, dockerfile)
            if isinstance(instruction, syntax.Arg):
                declare(instruction, dockerfile, given={}, outside=outside, variables={})


@given(
    st.one_of(FILES.map(str.encode), st.binary(max_size=100), FILES.map(lambda t: f"FROM a\n{t}"))
)
@settings(max_examples=150)
def test_any_bytes_are_a_dockerfile_or_an_error_with_its_place(data: bytes | str) -> None:
    try:
        exercise(data)
    except SpecError as error:
        place, line, _ = str(error).split(":", 2)
        assert place == "Dockerfile"
        assert int(line) >= 1


# --- printed and read back ------------------------------------------------------------------------

WORDS = st.text(alphabet="abcXYZ09_./@+,é", min_size=1, max_size=8)
NAMES = st.text(alphabet="abcXYZ_", min_size=1, max_size=6)
TEXTS = st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=12)
BODIES = st.lists(st.text(alphabet="ab \t$'\"\\#", max_size=8), max_size=4).map(
    lambda lines: "".join(f"{line}\n" for line in lines if line.strip("\t") != "END")
)
LISTS = st.lists(TEXTS, min_size=1, max_size=4).map(tuple)
HEREDOCS = st.builds(
    Heredoc, name=st.just("END"), content=BODIES, expand=st.booleans(), chomp=st.booleans()
)
SHELL_COMMANDS = st.builds(
    Command,
    words=st.lists(WORDS, min_size=1, max_size=4).map(lambda words: (" ".join(words),)),
    is_shell=st.just(value=True),
)
EXEC_COMMANDS = st.builds(Command, words=LISTS, is_shell=st.just(value=False))
COMMANDS = st.one_of(SHELL_COMMANDS, EXEC_COMMANDS.filter(lambda command: any(command.words)))
PAIRS = st.lists(st.tuples(NAMES, TEXTS), min_size=1, max_size=3).map(tuple)

HERE = {"line": st.just(0), "source": st.just("")}
INSTRUCTIONS = st.one_of(
    st.builds(
        syntax.Run,
        **HERE,
        command=COMMANDS,
        mounts=st.lists(WORDS.map(lambda word: f"target={word.replace(',', '')}/")).map(tuple),
        network=st.sampled_from(["default", "none", "host"]),
    ),
    st.builds(
        syntax.Copy,
        **HERE,
        sources=LISTS.filter(lambda texts: not any("://" in text for text in texts)),
        destination=TEXTS,
        chown=st.none() | WORDS,
        excludes=st.lists(WORDS, max_size=2).map(tuple),
        parents=st.booleans(),
    ),
    st.builds(
        syntax.Copy,
        **HERE,
        sources=st.just(()),
        destination=WORDS,
        heredocs=HEREDOCS.map(lambda heredoc: (heredoc,)),
    ),
    st.builds(syntax.Env, **HERE, pairs=PAIRS),
    st.builds(syntax.Label, **HERE, pairs=PAIRS),
    st.builds(syntax.Workdir, **HERE, path=WORDS),
    st.builds(syntax.User, **HERE, user=WORDS),
    st.builds(syntax.Cmd, **HERE, command=COMMANDS),
    st.builds(syntax.Entrypoint, **HERE, command=COMMANDS),
    st.builds(syntax.Shell, **HERE, words=LISTS),
    st.builds(syntax.Volume, **HERE, paths=st.lists(WORDS, min_size=1, max_size=3).map(tuple)),
    st.builds(syntax.Expose, **HERE, ports=st.lists(WORDS, min_size=1, max_size=3).map(tuple)),
    st.builds(syntax.StopSignal, **HERE, signal=WORDS),
)


def quoted(text: str) -> str:
    """Return a value of ENV between quotes: its own quotes are written from outside of them."""
    return "'" + text.replace("'", "'\\''") + "'"


def printed(instruction: Instruction) -> str:
    """Return an instruction as a file would have it."""
    return f"{syntax.keyword(instruction)} {' '.join(arguments(instruction))}"


def arguments(instruction: Instruction) -> list[str]:
    found: list[str] = []
    match instruction:
        case syntax.Run(command=command):
            flags = [f"--mount={mount}" for mount in instruction.mounts]
            found = [*flags, f"--network={instruction.network}", written(command)]
        case syntax.Copy():
            found = [*copy_flags(instruction), *files(instruction)]
        case syntax.Env(pairs=pairs) | syntax.Label(pairs=pairs):
            found = [f"{name}={quoted(value)}" for name, value in pairs]
        case syntax.Cmd(command=command) | syntax.Entrypoint(command=command):
            found = [written(command)]
        case syntax.Shell(words=texts):
            found = [json.dumps(texts)]
        case syntax.Volume(paths=texts) | syntax.Expose(ports=texts):
            found = list(texts)
        case syntax.Workdir(path=text) | syntax.User(user=text) | syntax.StopSignal(signal=text):
            found = [text]
    return found


def written(command: Command) -> str:
    return command.words[0] if command.is_shell else json.dumps(command.words)


def copy_flags(copy: syntax.Copy) -> list[str]:
    chown = [] if copy.chown is None else [f"--chown={copy.chown}"]
    return [
        *chown,
        *(f"--exclude={each}" for each in copy.excludes),
        *(["--parents"] * copy.parents),
    ]


def files(copy: syntax.Copy) -> list[str]:
    if not copy.heredocs:
        return [json.dumps([*copy.sources, copy.destination])]
    (heredoc,) = copy.heredocs
    word = "<<" + "-" * heredoc.chomp + ("END" if heredoc.expand else "'END'")
    return [word, f"{copy.destination}\n{heredoc.content}END"]


@given(st.lists(INSTRUCTIONS, max_size=5))
def test_a_printed_file_is_read_back(instructions: list[Instruction]) -> None:
    text = "\n".join(["FROM scratch", *map(printed, instructions)])
    (stage,) = parse(text, "Dockerfile").stages

    found = [replace(each, line=0, source="") for each in stage.instructions]
    expected = [
        replace(each, pairs=tuple((name, quoted(value)) for name, value in each.pairs))
        if isinstance(each, syntax.Env | syntax.Label)
        else each
        for each in instructions
    ]
    assert found == expected


@given(PAIRS)
def test_quoted_values_are_what_was_quoted(pairs: tuple[tuple[str, str], ...]) -> None:
    env = syntax.Env(line=1, source="", pairs=pairs)
    dockerfile = parse(f"FROM scratch\n{printed(env)}", "Dockerfile")
    (read,) = dockerfile.stages[0].instructions
    expanded = expand_fields(read, {"a": "never"}, dockerfile)
    assert isinstance(expanded, syntax.Env)
    assert expanded.pairs == pairs


@given(instructions=st.lists(INSTRUCTIONS, min_size=1, max_size=4), data=st.data())
@settings(max_examples=50)
def test_comments_and_blank_lines_between_instructions_change_nothing(
    instructions: list[Instruction], data: st.DataObject
) -> None:
    between = st.sampled_from(["\n", "# comment\n", "\n  \n", "\t# a\n\n"])
    texts = [printed(each) for each in instructions]
    filled = "".join(f"{data.draw(between)}{text}\n" for text in texts)
    plain, other = (
        parse(f"FROM scratch\n{text}", "Dockerfile") for text in ("\n".join(texts), filled)
    )
    assert unplaced(plain) == unplaced(other)


def unplaced(dockerfile: Dockerfile) -> list[Instruction]:
    stage: Stage = dockerfile.stages[0]
    return [replace(each, line=0) for each in stage.instructions]
