"""Being let in by real registries: passwords, tokens, helpers, certificates, redirects, ranges."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

import pytest


def coded(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def logins(path: Path, host: str, user: str, password: str) -> dict[str, str]:
    path.write_text(json.dumps({"auths": {host: {"auth": coded(user, password)}}}))
    return {"REGISTRY_AUTH_FILE": str(path)}


@pytest.fixture
def pull(sandbox: Any, home: Path) -> Any:
    """`pull(host, env={…})` pulls the small image; returns status and errors."""

    def run(host: str, **options: Any) -> tuple[int, str]:
        words = ("image", "pull", f"{host}/small:oci", "--insecure", host)
        status, _, errors = sandbox(home, *words, **options)
        return status, errors

    return run


# --- passwords ------------------------------------------------------------------------------------


@pytest.fixture
def closed(served: Path, registry: Any, do: Any) -> Iterator[str]:
    """A registry that lets in `me` with `secret`."""
    (served / "passwords").write_text(do("htpasswd", "-Bbn", "me", "secret"))
    extra = f"auth: {{htpasswd: {{realm: here, path: {served}/passwords}}}}\n"
    with registry("basic", extra) as host:
        yield host


def test_a_registry_with_passwords_lets_in(closed: str, tmp_path: Path, pull: Any) -> None:
    status, errors = pull(closed)
    assert status == 1
    assert "docker login" in errors
    wrong = logins(tmp_path / "wrong", closed, "me", "no")
    assert pull(closed, env=wrong)[0] == 1
    status, errors = pull(closed, env=logins(tmp_path / "right", closed, "me", "secret"))
    assert status == 0, errors


def test_a_login_is_taken_from_a_helper(closed: str, tmp_path: Path, pull: Any) -> None:
    helper = tmp_path / "docker-credential-mine"
    helper.write_text(
        f'#!/bin/sh\nread -r server\n[ "$1 $server" = "get {closed}" ] || exit 1\n'
        'echo \'{"Username": "me", "Secret": "secret"}\'\n'
    )
    helper.chmod(0o755)
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {closed: "mine"}}))
    settings = {
        "DOCKER_CONFIG": str(tmp_path),
        "HOME": "/nonexistent",
        "XDG_RUNTIME_DIR": "",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }

    status, errors = pull(closed, env=settings)

    assert status == 0, errors


def test_podmans_login_comes_before_dockers(closed: str, tmp_path: Path, pull: Any) -> None:
    podman, docker = tmp_path / "containers/auth.json", tmp_path / "config.json"
    podman.parent.mkdir()
    settings = {
        "XDG_RUNTIME_DIR": str(tmp_path), "DOCKER_CONFIG": str(tmp_path), "HOME": "/nonexistent"
    }  # fmt: skip
    logins(podman, "other.example", "me", "no")
    logins(docker, closed, "me", "secret")
    status, errors = pull(closed, env=settings)
    assert status == 0, errors  # the first file knows nothing of this host

    logins(podman, closed, "me", "no")
    assert pull(closed, env=settings)[0] == 1


# --- tokens ---------------------------------------------------------------------------------------

Asked = list[tuple[str, str, dict[str, str], bytes]]


@pytest.fixture
def tokens(answering: Any) -> Iterator[tuple[str, Asked]]:
    """A server of tokens that wants `me` with `secret` or the token `id`, and what it was asked."""
    asked: Asked = []

    def answer(handler: Any) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        asked.append((handler.command, handler.path, dict(handler.headers), body))
        may = handler.headers.get("Authorization") == f"Basic {coded('me', 'secret')}"
        may = may or parse_qs(body.decode()).get("refresh_token") == ["id"]
        data = b'{"token": "anything"}' if may or handler.path.startswith("/open") else b"{}"
        handler.send_response(200 if len(data) > 2 else 401)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    with answering(answer) as host:
        yield f"http://{host}", asked


@pytest.mark.parametrize("who", ["anybody", "a password", "an identity token", "nobody"])
def test_a_registry_with_tokens_lets_in(
    who: str,
    served: Path,
    tmp_path: Path,
    registry: Any,
    pull: Any,
    tokens: tuple[str, Asked],
) -> None:
    realm, asked = tokens
    place = "open" if who == "anybody" else "token"
    extra = f"auth: {{silly: {{realm: '{realm}/{place}', service: here}}}}\n"
    login: dict[str, str] = {}
    if who == "a password":
        login = {"auth": coded("me", "secret")}
    elif who == "an identity token":
        login = {"auth": coded("<token>", ""), "identitytoken": "id"}
    with registry("bearer", extra) as host:
        (tmp_path / "auth.json").write_text(json.dumps({"auths": {host: login}}))
        status, errors = pull(host, env={"REGISTRY_AUTH_FILE": str(tmp_path / "auth.json")})

    assert status == (1 if who == "nobody" else 0), errors
    command, path, headers, body = asked[0]
    if who == "an identity token":
        assert command == "POST"
        assert parse_qs(body.decode())["scope"] == ["repository:small:pull"]
    else:
        assert "scope=repository%3Asmall%3Apull" in path
        assert ("Authorization" in headers) == (who == "a password")
    if who == "nobody":
        assert "without a login" in errors


# --- certificates ---------------------------------------------------------------------------------


@pytest.fixture
def secure(served: Path, registry: Any, do: Any) -> Iterator[str]:
    """A registry whose certificate nobody knows."""
    do("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
       "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
       "-keyout", served / "tls.key", "-out", served / "tls.crt")  # fmt: skip
    with registry("tls", secure=True) as host:
        yield host


def test_a_registry_with_tls_is_trusted_by_its_certificate_only(
    secure: str, served: Path, home: Path, sandbox: Any, pull: Any
) -> None:
    words = ("image", "pull", f"{secure}/small:oci")
    refused, _, errors = sandbox(home, *words)
    assert refused == 1
    assert "cannot be trusted" in errors
    assert f"--insecure {secure}" in errors
    assert sandbox(home, *words, "--insecure", "127.0.0.1:1")[0] == 1
    trusted = {"SSL_CERT_FILE": str(served / "tls.crt")}
    status, _, errors = sandbox(home, *words, env=trusted)
    assert status == 0, errors
    assert pull(secure)[0] == 0


@pytest.mark.parametrize("place", ["containers", "docker"])
def test_a_certificate_is_found_where_podman_and_docker_look(
    secure: str, served: Path, home: Path, tmp_path: Path, place: str
) -> None:
    # In a mount namespace of its own: nobody's /etc is changed.
    script = (
        'mount -t tmpfs tmpfs "$0" && mkdir "$0/upper" "$0/work" && '
        'mount -t overlay overlay -o "lowerdir=/etc,upperdir=$0/upper,workdir=$0/work" /etc && '
        'mkdir -p "$1" && cp "$2" "$1/ca.crt" && shift 2 && exec "$@"'
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "sandbox", "image", "pull", "-q", f"{secure}/small:oci"]
    directory = f"/etc/{place}/certs.d/{secure}"
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            script,
            scratch,
            directory,
            served / "tls.crt",
            *command,
        ],
        env={**os.environ, "SANDBOX_HOME": str(home)},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not Path(directory).exists()


# --- redirects and ranges -------------------------------------------------------------------------


def test_a_login_is_not_sent_to_where_a_registry_sends_us(
    served: Path, tmp_path: Path, registry: Any, answering: Any, pull: Any
) -> None:
    seen: list[tuple[str, bool]] = []
    with registry("behind") as upstream:

        def send_on(handler: Any, to: str) -> None:
            handler.send_response(307)
            handler.send_header("Location", f"http://{to}{handler.path}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        def storage(handler: Any) -> None:
            seen.append((handler.path, "Authorization" in handler.headers))
            send_on(handler, upstream)

        with answering(storage) as storing:

            def front(handler: Any) -> None:
                if handler.headers.get("Authorization") == f"Basic {coded('me', 'secret')}":
                    send_on(handler, storing)
                    return
                handler.send_response(401)
                handler.send_header("WWW-Authenticate", 'Basic realm="here"')
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            with answering(front) as host:
                login = logins(tmp_path / "auth.json", host, "me", "secret")
                status, errors = pull(host, env=login)

    assert status == 0, errors
    assert any("/blobs/" in path for path, _ in seen)
    assert not any(told for _, told in seen)


def test_a_download_that_was_cut_goes_on_where_it_was(
    served: Path, registry: Any, answering: Any, pull: Any
) -> None:
    asked: list[tuple[str | None, str | None]] = []
    parts: list[tuple[int, str]] = []
    with registry("cut") as upstream:

        def answer(handler: Any) -> None:
            names = ("Range", "If-Range", "Accept")
            headers = {name: handler.headers[name] for name in names if handler.headers[name]}
            request = Request(f"http://{upstream}{handler.path}", headers=headers)
            with urlopen(request, timeout=20) as response:
                data = response.read()
                handler.send_response(response.status)
                for name in ("Content-Type", "Content-Length", "Content-Range", "ETag"):
                    if response.headers[name]:
                        handler.send_header(name, response.headers[name])
                handler.end_headers()
                if len(data) > 1_000_000:  # the layer
                    asked.append((headers.get("Range"), headers.get("If-Range")))
                    parts.append((response.status, response.headers["ETag"]))
                    data = data if headers.get("Range") else data[:1_000_000]
                handler.wfile.write(data)

        with answering(answer) as host:
            status, errors = pull(host)

    assert status == 0, errors
    (whole, tag), (part, _) = parts
    assert (whole, part) == (200, 206)
    assert asked == [(None, None), ("bytes=1000000-", tag)]
