"""References: docker's short names and full ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.image.reference import is_digest, parse_reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "full", "short"),
    [
        ("debian", "docker.io/library/debian:latest", "debian:latest"),
        ("debian:12", "docker.io/library/debian:12", "debian:12"),
        ("owner/name", "docker.io/owner/name:latest", "owner/name:latest"),
        ("index.docker.io/debian", "docker.io/library/debian:latest", "debian:latest"),
        ("ghcr.io/a/b:v1", "ghcr.io/a/b:v1", "ghcr.io/a/b:v1"),
        ("localhost/a", "localhost/a:latest", "localhost/a:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest", "localhost:5000/a:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a:latest"),
        (f"debian@{DIGEST}", f"docker.io/library/debian@{DIGEST}", f"debian@{DIGEST}"),
        (f"d:1@{DIGEST}", f"docker.io/library/d:1@{DIGEST}", f"d:1@{DIGEST}"),
        ("a__b/c--d.e", "docker.io/a__b/c--d.e:latest", "a__b/c--d.e:latest"),
    ],
)
def test_a_short_name_stands_for_a_full_one(text: str, full: str, short: str) -> None:
    reference = parse_reference(text)

    assert str(reference) == full
    assert reference.short() == short
    assert parse_reference(full) == parse_reference(short) == reference


@pytest.mark.parametrize(
    "text",
    [
        "", "Debian", "a b", "a:", "a@", "a@sha256:12", "a:b:c", "/a", "a/", "a//b", "../a",
        "a:-x", "a:" + "t" * 129, "a" * 300, "0" * 64, "-a", "a_", "host.name:x/a", "é", "a\n",
        "http://host/a", "a@sha256:" + "A" * 64,
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_reference(text)

    assert caught.value.hint


@given(st.text(max_size=80))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except SpecError:
        return
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize("text", ["sha256:../../x", "sha256:" + "g" * 64, "md5:" + "0" * 32, None])
def test_only_digests_that_can_be_checked_are_digests(text: str | None) -> None:
    assert not is_digest(text)
    assert is_digest(DIGEST)
