"""Logins: found where docker and podman keep them, told to nobody."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ImageError
from sandbox.image.auth import Credentials, auth_files, find_credentials


def coded(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


@pytest.fixture
def find(tmp_path: Path) -> Any:
    """`find({"auths": …}, "host", "owner/name")` looks in a file with that content."""

    def look(document: Any, registry: str = "host", repository: str = "a/b") -> Credentials | None:
        path = tmp_path / "auth.json"
        path.write_text(json.dumps(document))
        return find_credentials(registry, repository, {"REGISTRY_AUTH_FILE": str(path)})

    return look


@pytest.mark.parametrize("key", ["host", "https://host", "http://host", "https://host/v1/"])
def test_a_login_is_found_however_its_host_is_written(find: Any, key: str) -> None:
    assert find({"auths": {key: coded("me:se:cret")}}) == Credentials(
        username="me", password="se:cret"
    )


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "docker.io/a"])
def test_the_hub_has_a_key_of_its_own(find: Any, key: str) -> None:
    assert find({"auths": {key: coded("me:x")}}, "docker.io").username == "me"


def test_the_closest_login_counts(find: Any) -> None:
    auths = {"host": coded("far:x"), "host/a": coded("near:x"), "host/a/b": coded("here:x")}

    assert find({"auths": auths}).username == "here"
    assert find({"auths": auths}, repository="a/c").username == "near"
    assert find({"auths": auths}, repository="c").username == "far"


def test_a_login_for_another_host_is_not_used(find: Any) -> None:
    auths = {"other": coded("me:x"), "host.evil": coded("me:x"), "host:5000": coded("me:x")}

    assert find({"auths": auths}) is None
    assert find({}) is None


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials(username="me", password="secret", identity_token="token"))

    assert "secret" not in shown
    assert "token=" not in shown


@pytest.mark.parametrize("auth", ["%%%", "", 5, None])
def test_a_damaged_login_is_named(find: Any, auth: Any) -> None:
    with pytest.raises(ImageError, match="damaged credentials for host"):
        find({"auths": {"host": {"auth": auth}}})


def test_podmans_file_comes_before_dockers() -> None:
    files = auth_files({"HOME": "/home/me", "XDG_RUNTIME_DIR": "/run/user/1"})

    assert [str(path) for path in files] == [
        "/run/user/1/containers/auth.json",
        "/home/me/.config/containers/auth.json",
        "/home/me/.docker/config.json",
    ]
    assert auth_files({}) == []


HELPER = """#!/bin/sh
read -r server
case "$server" in
host) echo '{"Username": "me", "Secret": "from helper"}' ;;
token) echo '{"Username": "<token>", "Secret": "id"}' ;;
none) echo 'credentials not found in native keychain'; exit 1 ;;
odd) echo 'no JSON' ;;
*) echo 'it is locked' >&2; exit 1 ;;
esac
"""


@pytest.fixture
def _helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker-credential-mine"
    program.write_text(HELPER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("_helper")
def test_helpers_are_asked(find: Any) -> None:
    assert find({"credsStore": "mine"}).password == "from helper"
    assert find({"credHelpers": {"host": "mine"}, "auths": {"host": {}}}).username == "me"
    assert find({"credHelpers": {"token": "mine"}}, "token").identity_token == "id"
    assert find({"credsStore": "mine"}, "none") is None


@pytest.mark.usefixtures("_helper")
@pytest.mark.parametrize(
    ("name", "server", "message"),
    [
        ("mine", "odd", "cannot be understood"),
        ("mine", "locked", "it is locked"),
        ("../../bin/sh", "host", "is no name"),
        ("absent", "host", "cannot ask"),
    ],
)
def test_helpers_that_do_not_help_are_named(
    find: Any, name: str, server: str, message: str
) -> None:
    with pytest.raises(ImageError, match=message):
        find({"credHelpers": {server: name}}, server)
