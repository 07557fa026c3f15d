"""What a virtual environment is to hold: requirements files, names, and headers of scripts.

A script's header is the `script` block of PEP 723. Files that a requirements file names are read
too: the digest of it all says whether the same was asked for before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sandbox.errors import SpecError
from sandbox.records.light import dataclass

_BLOCK = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
_INCLUDE = r"(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(?P<path>\S+)"
_INDEX_OPTION = (
    r"(?:-i|--index-url|--extra-index-url|-f|--find-links|--no-index|--pre|--prefer-binary"
    r"|--trusted-host|--no-binary|--only-binary)(?:[\s=]|$)"
)
_FIND_LINKS = r"(?P<option>-f|--find-links)(?:\s*=\s*|\s+)(?P<place>\S+)"
_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tar.xz")
_HINT_DIRECTORY = "build a wheel of it and name that, or install it in your own --venv"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was asked for, as it stands in the files, before anything is resolved."""

    files: tuple[Path, ...] = ()
    """Requirements files, absolute."""
    requirements: tuple[str, ...] = ()
    """One requirement each, from --pip and from scripts' headers."""
    options: tuple[str, ...] = ()
    """The lines of the files that say where packages come from."""
    requires_python: tuple[tuple[str, str], ...] = ()
    """`>=3.11` and the script that says so."""
    digest: str = ""
    """Over all of it, the files that are named inside of files included."""

    def describe(self) -> str:
        """Return in a few words what was asked for."""
        names = [*(file.name for file in self.files), *map(without_password, self.requirements)]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004


def read_inputs(files: Sequence[Path], packages: Sequence[str]) -> Inputs:
    """Read requirements files and scripts (`.py`), and add the `packages`.

    Raises:
        SpecError: a file cannot be read or has no header, or a requirement's content may change.
    """
    reading = _Reading()
    for file in files:
        path = file.absolute()
        if path.suffix == ".py":
            reading.add_script(path)
        else:
            reading.files.append(path)
            reading.add_file(path)
    for package in packages:
        reading.add_requirement(package, "--pip", Path.cwd())
    return Inputs(
        files=tuple(reading.files),
        requirements=tuple(reading.requirements),
        options=tuple(reading.options),
        requires_python=tuple(reading.requires_python),
        digest=reading.digest.hexdigest(),
    )


def parse_header(text: str, path: str) -> dict[str, Any] | None:
    """Return a script's PEP 723 block as it was parsed, or None if it has none.

    Raises:
        SpecError: there are two, it is not TOML, or its values are of the wrong kind.
    """
    import tomllib

    matches = [m for m in re.finditer(_BLOCK, text) if m["type"] == "script"]
    if not matches:
        return None
    if len(matches) > 1:
        raise SpecError(
            f"{path}: there are {len(matches)} `script` blocks, one is allowed",
            hint="leave the others out",
        )
    lines = matches[0]["content"].splitlines(keepends=True)
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    try:
        header = tomllib.loads(content)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(
            f"{path}: the `script` block is not TOML: {exc}",
            hint="each line of it begins with `# `",
        ) from None
    names = header.get("dependencies", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(
            f"{path}: `dependencies` is not a list of texts",
            hint="""write `# dependencies = ["numpy"]`""",
        )
    if not isinstance(header.get("requires-python", ""), str):
        raise SpecError(
            f"{path}: `requires-python` is not a text",
            hint="""write `# requires-python = ">=3.11"`""",
        )
    return header


def without_password(text: str) -> str:
    """Return `text` without the user and password of a URL: it goes into records and messages."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def logical_lines(text: str) -> Iterator[str]:
    """Yield the lines of a requirements file: joined at a backslash, without comments."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        kept = re.sub(r"(^|\s)#.*$", "", line).strip()
        if kept:
            yield kept


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.requirements: list[str] = []
        self.options: list[str] = []
        self.requires_python: list[tuple[str, str]] = []
        self.digest = hashlib.sha256()
        self._seen: set[Path] = set()

    def add_script(self, path: Path) -> None:
        header = parse_header(_read(path), str(path))
        if header is None:
            raise SpecError(
                f"{path} has no header that says what it requires",
                hint="write one as PEP 723 has it: `# /// script`, "
                '`# dependencies = ["numpy"]`, `# ///`',
            )
        for name in header.get("dependencies", []):
            self.add_requirement(name, str(path), path.parent)
        if specifier := header.get("requires-python"):
            self.requires_python.append((specifier, str(path)))
            self._note("python", specifier)

    def add_file(self, path: Path) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        text = _read(path)
        self._note("file", text)
        for line in logical_lines(text):
            if include := re.match(_INCLUDE, line):
                self.add_file(path.parent / include["path"])
            elif re.match(_INDEX_OPTION, line):
                self.options.append(_with_absolute_place(line, path.parent))
            else:
                self._check(line, str(path), path.parent)

    def add_requirement(self, text: str, where: str, directory: Path) -> None:
        requirement = text.strip()
        if not requirement or requirement.startswith("-"):
            raise SpecError(
                f"{where}: `{text}` is not a requirement",
                hint="write a name as pip takes it, such as `numpy>=2`; options belong in a file",
            )
        self.requirements.append(requirement)
        self._note("requirement", requirement)
        self._check(requirement, where, directory)

    def _check(self, line: str, where: str, directory: Path) -> None:
        """Take the content of a local archive into the digest; refuse a local directory."""
        if re.match(r"(?:-e|--editable)(?:[\s=]|$)", line):
            raise SpecError(
                f"{where}: `{line}` is editable: its content may change", hint=_HINT_DIRECTORY
            )
        target = _local_target(line, directory)
        if target is None:
            return
        if target.is_dir():
            raise SpecError(
                f"{where}: `{line}` is a directory: its content may change", hint=_HINT_DIRECTORY
            )
        try:
            self._note("archive", hashlib.sha256(target.read_bytes()).hexdigest())
        except OSError as exc:
            raise SpecError(
                f"{where}: cannot read {target}: {exc.strerror}",
                hint="what `-r` and `-c` name is meant from beside the file that names it",
            ) from None

    def _note(self, kind: str, content: str) -> None:
        data = content.encode("utf-8", "surrogateescape")
        self.digest.update(f"{kind} {len(data)}\n".encode() + data)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(
            f"cannot read the requirements in {path}: it is not UTF-8",
            hint="save it as UTF-8: one requirement a line",
        ) from None
    except OSError as exc:
        raise SpecError(
            f"cannot read the requirements in {path}: {exc.strerror}",
            hint="`--requirements` names a file of requirements, one a line",
        ) from None


def _local_target(line: str, directory: Path) -> Path | None:
    """Return the file or directory that a requirement is, or None if it is a name or a URL."""
    word = line.split(" --hash", 1)[0].split(";", 1)[0].strip()
    place = word.split("@", 1)[1].strip() if re.match(r"[\w.\[\],-]+\s*@", word) else word
    if place.startswith("file:"):
        return Path(unquote(urlsplit(place).path))
    if "://" in place:
        return None
    is_path = place.startswith((".", "/", "~")) or place.split("[")[0].endswith(_ARCHIVES)
    return directory / Path(place.split("[")[0]).expanduser() if is_path else None


def _with_absolute_place(line: str, directory: Path) -> str:
    match = re.fullmatch(_FIND_LINKS, line)
    if match is None or "://" in match["place"]:
        return line
    return f"--find-links {directory / match['place']}"


def check_python(requires: Iterable[tuple[str, str]], version: tuple[int, ...]) -> None:
    """Refuse a script whose `requires-python` this Python is not.

    Raises:
        SpecError: it is not, or a specifier cannot be understood.
    """
    for specifier, where in requires:
        if not all(_holds(part.strip(), version, where) for part in specifier.split(",") if part):
            ours = ".".join(map(str, version))
            raise SpecError(
                f"{where} requires Python {specifier}, this is {ours}",
                hint="make an environment with that Python and name it with --venv",
            )


def _holds(part: str, version: tuple[int, ...], where: str) -> bool:
    match = re.fullmatch(r"(?a)(~=|[=<>!]=|[<>])\s*(\d+(?:\.\d+)*)(\.\*)?", part)
    if match is None or (match[3] and match[1] not in {"==", "!="}):
        raise SpecError(
            f"{where}: `{part}` does not say which Python",
            hint="write it as `>=3.11` or `==3.12.*`",
        )
    asked = tuple(map(int, match[2].split(".")))
    width = max(len(asked), len(version))
    wide, ours = _padded(asked, width), _padded(version, width)
    equal = version[: len(asked)] == asked if match[3] else ours == wide
    if match[1] == "~=":
        return ours >= wide and version[: len(asked) - 1] == asked[:-1]
    answers = {"==": equal, "!=": not equal, ">=": ours >= wide, "<=": ours <= wide}
    return (
        answers[match[1]]
        if match[1] in answers
        else (ours > wide if match[1] == ">" else ours < wide)
    )


def _padded(version: tuple[int, ...], width: int) -> tuple[int, ...]:
    return version + (0,) * (width - len(version))
