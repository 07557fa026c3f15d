"""Steps of apt and pip in a Debian, from a repository and an index on loopback."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
AS_ROOT = os.geteuid() == 0
ON_SERVER = os.environ.get("SANDBOX_GUEST") == "server"  # there an image was brought along
NAME = "test-greeter"
SHRUNK = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "man", "locale")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (AS_ROOT or ON_SERVER), reason="a Debian is made as root"),
    pytest.mark.skipif(
        not ((ON_SERVER or shutil.which("mmdebstrap")) and shutil.which("dpkg-deb")),
        reason="no mmdebstrap",
    ),
]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minimal Debian with pip, as an archive."""
    if ON_SERVER:
        return PROJECT / ".cache/infer-image.tar"
    path = tmp_path_factory.mktemp("debian") / "debian.tar"
    words = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-pip"]
    command = [*words, '--aptopt=Acquire::Retries "3"', *SHRUNK, "bookworm", path]
    subprocess.run(command, check=True, timeout=500, capture_output=True)
    return path


def make_package(directory: Path, name: str, postinst: str) -> None:
    root = directory / "root" / name
    (root / "DEBIAN").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: T <t@example.org>\n"
        "Description: says something\n"
    )
    (root / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\n{postinst}\n")
    (root / "DEBIAN/postinst").chmod(0o755)
    (root / f"usr/bin/{name}").write_text("#!/bin/sh\necho greets\n")
    (root / f"usr/bin/{name}").chmod(0o755)
    command = ["dpkg-deb", "--root-owner-group", "-b", root, directory / f"{name}_1.0_all.deb"]
    subprocess.run(command, check=True, capture_output=True)


def write_packages(directory: Path) -> None:
    """Write the list of a repository, as dpkg-scanpackages does."""
    entries = []
    for path in sorted(directory.glob("*.deb")):
        control = subprocess.run(
            ["dpkg-deb", "-f", path], check=True, capture_output=True, text=True
        ).stdout
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        size = path.stat().st_size
        entries.append(f"{control}Filename: ./{path.name}\nSize: {size}\nSHA256: {digest}\n")
    (directory / "Packages").write_text("\n".join(entries))


def write_index(directory: Path) -> None:
    """Write a wheel, and the pages of an index that pip finds it by."""
    pages = directory / "simple/greets"
    pages.mkdir(parents=True)
    wheel = pages / "greets-1.0-py3-none-any.whl"
    files = {
        "greets.py": "WORD = 'from a wheel'\n",
        "greets-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greets\nVersion: 1.0\n",
        "greets-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "greets-1.0.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            lines.append(f"{name},sha256={digest.decode().rstrip('=')},{len(text)}")
        archive.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    (pages / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')


class Server:
    """A server of a directory that knows what was asked for."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, directory=str(directory), **options)

            def end_headers(self) -> None:
                if self.path.endswith(".whl"):
                    self.send_header("Cache-Control", "max-age=100000")
                super().end_headers()

            def log_message(self, *_words: Any) -> None:
                outer.asked.append(self.path)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Server]:
    directory = tmp_path / "packages"
    directory.mkdir()
    make_package(directory, NAME, "true")
    make_package(directory, "test-owner", "chgrp mail /usr/bin/test-owner")
    write_packages(directory)
    write_index(directory)
    server = Server(directory)
    yield server
    server.close()


def dockerfile(server: Server, package: str = NAME) -> str:
    return (
        f"FROM debian\nRUN echo 'deb [trusted=yes] {server.address} ./' >/etc/apt/sources.list\n"
        f"RUN apt-get update && apt-get install -y {package} && rm -rf /var/lib/apt/lists/*\n"
        f"RUN pip install --break-system-packages --trusted-host 127.0.0.1 \\\n"
        f"    --index-url {server.address}/simple greets \\\n"
        "    && rm -rf ~/.cache\n"
        f'CMD {package}; python3 -c "import greets; print(greets.WORD)"\n'
    )


def test_packages_are_installed_and_what_is_fetched_is_kept(
    cli: Callable[..., Any], debian: Path, packages: Server, tmp_path: Path, sandbox_home: Path
) -> None:
    loaded = cli("image", "load", "-q", "-t", "debian", debian, timeout=200)
    assert loaded.status == 0, loaded.stderr
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(dockerfile(packages))
    words = ("image", "build", "-t", "built", context)

    built = cli(*words, timeout=200)

    assert built.status == 0, built.stderr
    done = cli("run", "-q", "--network", "none", "--image", "built")
    assert done.stdout == "greets\nfrom a wheel\n", done.stderr
    listed = cli(
        "run", "-q", "--image", "built", "--", "find", "/var/cache/apt", "/root", "-type", "f"
    )
    assert not [line for line in listed.stdout.split() if ".deb" in line or ".cache" in line]
    caches = [path.name for path in (sandbox_home / "images/caches").rglob("*")]
    assert f"{NAME}_1.0_all.deb" in caches
    assert cli(*words).stderr.endswith("4 steps, 3 from the cache\n")

    packages.asked.clear()
    again = cli(*words, "--no-cache", timeout=200)

    assert again.status == 0, again.stderr
    assert not [path for path in packages.asked if path.endswith((".deb", ".whl"))]


@pytest.fixture
def plain_place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory of the plain user's."""
    place: Path = request.getfixturevalue("plain_home") if AS_ROOT else tmp_path
    return place


@pytest.fixture
def plainly(request: pytest.FixtureRequest, cli: Callable[..., Any]) -> Callable[..., Any]:
    """Run our command line as a plain user: who we are, unless that is root."""
    if not AS_ROOT:
        return cli
    return partial(request.getfixturevalue("plain_user"), "python", "-m", "sandbox")


@pytest.mark.also_on_server
def test_a_plain_user_installs_packages(
    plainly: Callable[..., Any],
    plain_place: Path,
    debian: Path,
    packages: Server,
    need_kernel: Callable[[object, str], None],
) -> None:
    archive = plain_place / "debian.tar"
    shutil.copy(debian, archive)
    context = plain_place / "context"
    context.mkdir()
    for path in (archive, context) if AS_ROOT else ():
        os.chown(path, 65534, 65534)
    loaded = plainly("image", "load", "-q", "-t", "debian", archive, timeout=400)
    assert loaded.status == 0, loaded.stderr
    # One gives a file to another group, by a lent id or with a filter that says all went well; on
    # an emulated server that one alone takes a minute.
    for package in ("test-owner",) if ON_SERVER else (NAME, "test-owner"):
        (context / "Dockerfile").write_text(dockerfile(packages, package))

        built = plainly("image", "build", "-t", "built", context, timeout=300)

        is_closed = "user namespaces may be closed" in built.stderr
        need_kernel(not is_closed, "a plain user may make no user namespace here")
        assert built.status == 0, built.stderr
        done = plainly("run", "-q", "--image", "built")
        assert done.stdout == "greets\nfrom a wheel\n", done.stderr


SERVICE = """\
FROM debian
COPY test-service_1.0_all.deb /
RUN apt-get install -y ./test-service_1.0_all.deb
RUN test "$(stat -c %U:%G:%a /var/lib/service)" = service:service:750 && \\
    su service -s /bin/sh -c 'id -un >/var/lib/service/name'
USER service
CMD stat -c '%U:%G' /var/lib/service/name && cat /var/lib/service/name && ! cat /etc/shadow
"""


@pytest.mark.skipif(not AS_ROOT, reason="only root can lend ids")
def test_a_package_makes_a_user_of_its_own_with_lent_ids(
    many_users: Callable[..., Any], plain_home: Path, debian: Path, tmp_path: Path
) -> None:
    place = "/var/lib/service"
    make_package(
        tmp_path,
        "test-service",
        f"useradd -r -d {place} service\ninstall -d -o service -g service -m 750 {place}",
    )
    context, archive = plain_home / "context", plain_home / "debian.tar"
    context.mkdir()
    shutil.copy(debian, archive)
    shutil.copy(tmp_path / "test-service_1.0_all.deb", context)
    (context / "Dockerfile").write_text(SERVICE)
    for path in (archive, context, *context.iterdir()):
        os.chown(path, 65534, 65534)

    def sandbox(*words: str | Path) -> Any:
        return many_users("-m", "sandbox", *words, timeout=300)

    assert sandbox("image", "load", "-q", "-t", "debian", archive).returncode == 0
    built = sandbox("image", "build", "--network", "none", "-t", "built", context)

    assert built.returncode == 0, built.stderr
    ran = sandbox("run", "-q", "--network", "none", "--image", "built")
    assert ran.stdout == "service:service\nservice\n", ran.stderr
    assert "Permission denied" in ran.stderr
    assert sandbox("image", "prune", "--all").returncode == 0
