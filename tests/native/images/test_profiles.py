"""Profiles in images: from a registry on loopback, and built of packages, wheels and a script."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
MODEL = "squeezenet_1.1_224.onnx"
COLUMNS = (
    *("NAME", "AVG CPU %", "PEAK CPU", "AVG MEM USAGE / LIMIT", "PEAK MEM", "NET I/O"),
    *("BLOCK I/O", "TOTAL TIME (ms)"),
)
Profile = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def infer_at(registry: Any, do: Callable[..., str], python_image: Path) -> Iterator[str]:
    """A real registry on loopback that has Python with onnxruntime as `infer:1`."""
    with registry("infer") as host:
        copy = ("skopeo", "copy", "--dest-tls-verify=false")
        do(*copy, f"oci-archive:{python_image}", f"docker://{host}/infer:1")
        yield host


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, sandbox: Any) -> Iterator[Path]:
    """One home for all: the large image is unpacked once."""
    path = tmp_path_factory.mktemp("profiles") / "home"
    yield path
    sandbox(path, "image", "prune", "--all")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project with a script that says what it finds."""
    (tmp_path / "project/bench").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture
def profile(home: Path, place: Path) -> Profile:
    """`profile(IMAGEREPO=…)` writes an env file and runs the drop-in on it."""

    def run(*flags: str, **variables: str) -> tuple[int, str, str]:
        usual = {
            "DIR": "bench",
            "SCRIPT": "run.py",
            "COMMAND": "python3",
            "SAMPLETIME": "0.5",
            "OUTPUTFILE": "out.txt",
            "DOCKMEMORY": "512m",
        }
        lines = (f"{name}='{value}'\n" for name, value in {**usual, **variables}.items() if value)
        (place / "env.template").write_text("".join(lines))
        done = subprocess.run(
            [sys.executable, "-m", "sandbox.profiler", "-e", "env.template", *flags],
            cwd=place,
            env={**os.environ, "SANDBOX_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def output_of(home: Path, sandbox: Any) -> Callable[[str], str]:
    """What the script of the only row of a JSON profile wrote."""

    def read(printed: str) -> str:
        (row,) = json.loads(printed)["rows"]
        _, record, _ = sandbox(home, "runs", "show", row["run_id"], "--json")
        return (Path(json.loads(record)["directory"]) / "stdout").read_text()

    return read


def test_models_run_in_an_image_from_a_registry_on_loopback(
    infer_at: str, profile: Profile, place: Path
) -> None:
    """The example benchmark, its script and model copied into the image, end to end."""
    build = [sys.executable, PROJECT / "examples/models/build_models.py"]
    subprocess.run([*build, "--directory", place / "bench"], check=True, timeout=60)
    for path in (place / "bench").glob("*.onnx"):
        if path.name != MODEL:
            path.unlink()
    shutil.copy(PROJECT / "examples/profiler/bench/test_perf.py", place / "bench")
    shutil.copy(place / "bench" / MODEL, place / "bench/Second.onnx")
    variables = {
        "IMAGEREPO": f"{infer_at}/infer:1",
        "SCRIPT": "test_perf.py --iterations 5",
        "DOCKCPUS": "1.0",
    }

    status, printed, said = profile("-m", f"{MODEL},Second.onnx", **variables)
    again = profile("-m", MODEL, **variables)

    assert status == 0, said
    title, columns, _, first, second = printed.splitlines()
    assert title == "Final Usage Stats"
    assert [name for name in COLUMNS if name not in columns] == []
    assert first.startswith("squeezenet_1.1_224 ")
    assert second.startswith("Second ")
    assert " / 512.0 MiB " in first
    assert (place / "out.txt").read_text().count("Usage stats") == 2
    assert again[0] == 0, again[2]
    assert "COPY . .\n" in again[2]
    assert again[2].count("CACHED") == 2  # WORKDIR and COPY: nothing has changed
    left = {path.name for path in place.iterdir()}
    assert left == {
        *("bench", "env.template", "out.txt"),
        *("squeezenet_1.1_224_out.txt", "Second_out.txt"),
    }


# --- installed into it ----------------------------------------------------------------------------


def make_package(directory: Path) -> None:
    """Write a Debian repository of one package."""
    tree = directory / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/sandbox-tool").write_text("#!/bin/sh\necho the tool\n")
    (tree / "usr/bin/sandbox-tool").chmod(0o755)
    about = (
        "Package: sandbox-tool\nVersion: 1.0\nArchitecture: all\n"
        "Maintainer: Nobody <nobody@example.com>\nDescription: a tool\n"
    )
    (tree / "DEBIAN/control").write_text(about)
    file = directory / "sandbox-tool.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", tree, file]
    subprocess.run(build, check=True, capture_output=True, timeout=60)
    shutil.rmtree(tree)
    data = file.read_bytes()
    entry = f"Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {_sha256(data)}\n"
    (directory / "Packages").write_text(f"{about}{entry}\n")


def make_wheel(directory: Path) -> None:
    """Write an index of one wheel, as PEP 503 has it."""
    info = "sandbox_wheel-1.0.dist-info"
    files = {
        "sandbox_wheel.py": "answer = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: sandbox-wheel\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    page = directory / "simple/sandbox-wheel"
    page.mkdir(parents=True)
    name = "sandbox_wheel-1.0-py3-none-any.whl"
    (page / name).write_bytes(data.getvalue())
    (page / "index.html").write_text(
        f'<a href="{name}#sha256={_sha256(data.getvalue())}">{name}</a>'
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a Debian repository and an index of wheels."""
    directory = tmp_path_factory.mktemp("packages")
    make_package(directory)
    make_wheel(directory)
    serve = functools.partial(_Quiet, directory=str(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def base(infer_at: str, packages: str, tmp_path: Path) -> Path:
    """The directory of a Dockerfile: an image that installs from that server, and has pip."""
    pip = Path(sys.executable).parent.parent / "lib"
    (pip,) = pip.glob("python3*/site-packages/pip")
    context = tmp_path / "base"
    shutil.copytree(pip, context / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    (context / "pip-command").write_text(
        "#!/usr/bin/python3\nfrom pip._internal.cli.main import main\nraise SystemExit(main())\n"
    )
    (context / "pip-command").chmod(0o755)
    (context / "Dockerfile").write_text(
        f"FROM {infer_at}/infer:1\n"
        "COPY pip /usr/local/lib/python3.11/dist-packages/pip\n"
        "COPY pip-command /usr/local/bin/pip\n"
        f"RUN echo 'deb [trusted=yes] {packages} ./' >/etc/apt/sources.list; "
        "rm -rf /etc/apt/sources.list.d/*\n"
        f"ENV PIP_INDEX_URL={packages}/simple PIP_ROOT_USER_ACTION=ignore "
        "PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BREAK_SYSTEM_PACKAGES=1\n"
    )
    return context


@pytest.fixture
def base_image(base: Path, home: Path, infer_at: str, sandbox: Any) -> str:
    """The name of that image on this machine."""
    words = ("image", "build", "-q", "-t", "packages:1", "--insecure", infer_at, base)
    status, _, said = sandbox(home, *words)
    assert status == 0, said
    return "packages:1"


SAYS = """\
import os, subprocess, sys
import sandbox_wheel
print(os.getcwd(), sys.argv[1:], sandbox_wheel.answer)
print(open("note").read().strip(), subprocess.check_output(["sandbox-tool"], text=True).strip())
open("written", "w").write("gone with the run")
"""


def test_packages_and_commands_are_installed_in_auptimizers_order(
    base_image: str, profile: Profile, place: Path, output_of: Callable[[str], str]
) -> None:
    """PRERUN has the package, the copy of DIR and the working directory, but no wheel yet."""
    (place / "bench/run.py").write_text(SAYS)
    variables = {
        "IMAGEREPO": base_image,
        "APTREQUIREMENTS": "sandbox-tool",
        "PRERUN": 'test -f run.py && sandbox-tool >note && ! python3 -c "import sandbox_wheel"',
        "PIPREQUIREMENTS": "sandbox-wheel==1.0",
    }

    status, printed, said = profile("-m", "a.onnx", "--format", "json", **variables)
    (place / "bench/run.py").write_text(SAYS + "print('changed')\n")
    again = profile("-m", "a.onnx", "--format", "json", **variables)

    assert status == 0, said
    assert output_of(printed) == "/app ['a.onnx'] 42\nthe tool the tool\n"
    steps = re.findall(r"^#\d+ \[\d+/\d+\] .*", said, re.MULTILINE)
    wanted = ("FROM packages:1", "apt-get update", "WORKDIR /app", "COPY . .", "RUN", "pip install")
    assert len(steps) == len(wanted)
    assert all(words in step for words, step in zip(wanted, steps, strict=True)), steps
    assert again[0] == 0, again[2]
    assert output_of(again[1]).endswith("changed\n")  # nothing stale
    assert again[2].count("CACHED") == 2  # what stands before the copy
    assert {path.name for path in (place / "bench").iterdir()} == {"run.py"}
    assert {path.name for path in place.iterdir()} == {
        *("bench", "env.template", "out.txt", "a_out.txt"),
    }


def test_a_dockerfile_wins_over_the_variables(
    infer_at: str, profile: Profile, place: Path, output_of: Callable[[str], str]
) -> None:
    (place / "bench/run.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:])\n")
    (place / "Mine").write_text(
        f"FROM {infer_at}/infer:1\nWORKDIR /elsewhere\nCOPY bench/run.py .\n"
    )

    status, printed, said = profile(
        *("-m", "a.onnx", "--format", "json"),
        DOCFILE="Mine",
        IMAGEREPO="no-such-image",
        PRERUN="exit 7",
    )

    assert status == 0, said
    assert output_of(printed) == "/elsewhere ['a.onnx']\n"
    assert "the image is built by Mine, not of IMAGEREPO, PRERUN" in said


def test_a_build_that_fails_ends_with_status_0_and_no_summary(
    infer_at: str, profile: Profile, place: Path
) -> None:
    """Ours ends with 1, says which step, and shows what it wrote; named after the bug."""
    (place / "bench/run.py").write_text("")

    status, printed, said = profile(
        "-m", "a.onnx", IMAGEREPO=f"{infer_at}/infer:1", PRERUN="echo no such wheel; exit 7"
    )

    assert status == 1
    assert printed == ""
    assert "no such wheel" in said
    assert "sandbox: error: " in said
    assert re.search(r"sandbox: error: env.template:\d+: PRERUN: .* exited 7", said)
    assert "a: running" not in said
    assert {path.name for path in place.iterdir()} == {"bench", "env.template"}


def test_an_image_for_other_processors_is_run_all_the_same(
    infer_at: str, profile: Profile, place: Path
) -> None:
    """Auptimizer knows one kind of processor; ours says that an image is for another."""
    (place / "bench/run.py").write_text("")
    other = "s390x" if os.uname().machine != "s390x" else "amd64"

    status, _, said = profile(
        IMAGEREPO=f"{infer_at}/infer:1", DOCK_ARGS=f"--platform linux/{other}"
    )

    assert status == 1
    assert other in said
    assert "Traceback" not in said


def test_a_plain_user_builds_and_runs_too(infer_at: str, plain_user: Any, plain_home: Path) -> None:
    (plain_home / "bench").mkdir()
    (plain_home / "bench/run.py").write_text("print(open('note').read())\n")
    os.chown(plain_home / "bench", 65534, 65534)
    (plain_home / "env.template").write_text(
        f"IMAGEREPO={infer_at}/infer:1\nPRERUN='echo by nobody >note'\nDIR=bench\nSCRIPT=run.py\n"
        "COMMAND=python3\nSAMPLETIME=0.5\nOUTPUTFILE=out.txt\n"
    )

    done = plain_user(
        "python", "-m", "sandbox.profiler", "-e", "env.template", cwd=plain_home, timeout=200
    )

    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[3].startswith("run ")
    (written,) = plain_home.glob("sandbox-home/runs/*/stdout")
    assert written.read_text() == "by nobody\n\n"
    assert {path.name for path in (plain_home / "bench").iterdir()} == {"run.py"}
