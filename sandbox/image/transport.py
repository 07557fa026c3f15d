"""HTTP as registries need it, over urllib3: patient, wary of redirects, never with stray secrets.

urllib3 brings connections, TLS and proxies, and leaves to us what must be decided here: whom to
follow, what to send there, and how often to try again.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from sandbox.errors import ImageError
from sandbox.image.cancel import Flag
from sandbox.records.light import dataclass

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_PIECE = 1 << 18
_MOST_REDIRECTS = 10
_SECRET_HEADERS = frozenset({"authorization", "cookie"})
_CERTIFICATES = ("/etc/containers/certs.d", "/etc/docker/certs.d")
_AGENT = "cgroup-sandbox"
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


class UnreachedError(ImageError):
    """Nobody there has answered at all."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait, and how often to try again."""

    connect_sec: float = 15
    read_sec: float = 60
    """Without any byte."""
    attempts: int = 6
    """For one request, or for one part of a download."""
    first_attempts: int = 2
    """As long as nobody has answered at all: a wrong name or no network is not worth a wait."""
    backoff_sec: float = 0.5
    """Before the second attempt; doubled before each further one."""
    longest_wait_sec: float = 60
    """Whatever the registry asks for."""
    slow_sec: float = 60
    """How long a download may be slower than `slow_bytes_per_sec` before it is begun again."""
    slow_bytes_per_sec: int = 1024


class Transport:
    """Requests to one registry, and to where it sends us."""

    def __init__(self, host: str, *, insecure: bool, patience: Patience, flag: Flag) -> None:
        """Talk to `host`; `insecure` allows it plain HTTP and certificates of anyone."""
        self._host = host
        self.insecure = insecure
        self.patience = patience
        self._flag = flag
        self._pools: dict[str, Any] = {}
        self._is_reached = False

    def pause(self, attempt: int, asked_sec: float | None = None) -> None:
        """Wait before another attempt, the first being 1."""
        wait_sec = self.patience.backoff_sec * 2 ** (attempt - 1)
        if asked_sec is not None:
            wait_sec = max(asked_sec, wait_sec)
        self._flag.pause(min(wait_sec, self.patience.longest_wait_sec))

    def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        body: Mapping[str, str] | None = None,
    ) -> Any:
        """Return an answer whose body is yet to be read, whatever its status is.

        Args:
            url: Redirects from it are followed, without secrets to another host.
            headers: To send.
            body: Fields of a form to post instead.

        Raises:
            ImageError: there is no answer, or a redirect that must not be followed.
        """
        problem, attempt = "", 0
        while attempt < (attempts := self._attempts()):
            attempt += 1
            self._flag.check()
            try:
                answer = self._follow(url, headers, body)
            except _failures() as exc:
                problem = f"{urlsplit(url).netloc} cannot be reached: {self._explain(exc)}"
                asked_sec = None
            else:
                self._is_reached = True
                if answer.status not in _TRANSIENT:
                    return answer
                problem = f"{urlsplit(url).netloc} answers with status {answer.status}"
                asked_sec = _retry_after(answer.headers.get("Retry-After"))
                discard(answer)
            if attempt < attempts:
                self.pause(attempt, asked_sec)
        if not self._is_reached:
            hint = "check the name and the network; a proxy is taken from HTTPS_PROXY"
            raise UnreachedError(problem, hint=hint)
        raise ImageError(problem, hint="try again later; what was fetched is kept")

    def _attempts(self) -> int:
        return self.patience.attempts if self._is_reached else self.patience.first_attempts

    def answers(self, url: str) -> bool:
        """Return whether anybody answers there at all; one attempt."""
        try:
            discard(self._request(url, {}, None))
        except _failures():
            return False
        return True

    def _follow(self, url: str, headers: Mapping[str, str], body: Mapping[str, str] | None) -> Any:
        sent = dict(headers)
        for _ in range(_MOST_REDIRECTS):
            answer = self._request(url, sent, body)
            target = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not target:
                return answer
            discard(answer)
            following = urljoin(url, target)
            self._check_redirect(url, following)
            if _origin(following) != _origin(url):
                sent = {k: v for k, v in sent.items() if k.lower() not in _SECRET_HEADERS}
                if body is not None:
                    raise ImageError(f"{urlsplit(url).netloc} sends secrets on to another host")
            url = following
        raise ImageError(f"{urlsplit(url).netloc} sends us in circles")

    def _check_redirect(self, url: str, following: str) -> None:
        old, new = urlsplit(url), urlsplit(following)
        if new.scheme not in {"http", "https"} or not new.hostname:
            raise ImageError(f"{old.netloc} sends us to {following:.100}")
        if new.scheme == "http" and old.scheme == "https" and not self.is_trusted(new.netloc):
            raise ImageError(
                f"{old.netloc} sends us to {new.netloc} without TLS, which is not followed"
            )

    def is_trusted(self, host: str) -> bool:
        """Return whether a host may do without TLS: the one that was named."""
        return self.insecure and host == self._host

    def _request(self, url: str, headers: Mapping[str, str], body: Mapping[str, str] | None) -> Any:
        import urllib3

        parts = urlsplit(url)
        timeout = urllib3.Timeout(connect=self.patience.connect_sec, read=self.patience.read_sec)
        options: dict[str, Any] = (
            {} if body is None else {"fields": body, "encode_multipart": False}
        )
        return self._pool(parts.netloc).request(
            "GET" if body is None else "POST",
            url,
            headers={"User-Agent": _AGENT, "Accept-Encoding": "identity", **headers},
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
            **options,
        )

    def _pool(self, host: str) -> Any:
        if host not in self._pools:
            self._pools[host] = self._make_pool(host)
        return self._pools[host]

    def _make_pool(self, host: str) -> Any:
        import urllib3

        context = ssl.create_default_context()
        if self.is_trusted(host):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        for directory in _CERTIFICATES:
            for path in sorted(Path(directory, host).glob("*.crt")):
                context.load_verify_locations(path)
        proxy = _proxy(host)
        if proxy is not None:
            return urllib3.ProxyManager(proxy, ssl_context=context, maxsize=8)
        return urllib3.PoolManager(ssl_context=context, maxsize=8)

    def _explain(self, exc: Exception) -> str:
        import urllib3

        reason: BaseException = exc
        while isinstance(reason, urllib3.exceptions.MaxRetryError) and reason.reason:
            reason = reason.reason
        if isinstance(reason, urllib3.exceptions.SSLError):
            if any(sign in str(reason) for sign in _NO_TLS):
                raise ImageError(
                    f"{self._host} does not speak TLS",
                    hint=f"`--insecure {self._host}` does without, if you trust the network",
                ) from exc
            raise ImageError(
                f"{self._host} cannot be trusted: {reason}",
                hint=f"`--insecure {self._host}` does without, or install its certificate in "
                f"{_CERTIFICATES[0]}/{self._host}",
            ) from exc
        # Without its name for the connection, which says nothing.
        return re.sub(r"^HTTPS?Connection(?:Pool)?\([^)]*\): ", "", str(reason))


def pieces(answer: Any, patience: Patience) -> Iterator[bytes]:
    """Yield the body of an answer as it comes, not when some length of it is full.

    Raises:
        OSError: it comes too slowly.
        urllib3.exceptions.HTTPError: it was cut off.
    """
    started, count = time.monotonic(), 0
    while data := answer.read1(_PIECE, decode_content=False):
        yield data
        count += len(data)
        elapsed_sec = time.monotonic() - started
        if elapsed_sec > patience.slow_sec:
            if count < patience.slow_bytes_per_sec * elapsed_sec:
                raise TimeoutError(f"only {count} bytes came in {elapsed_sec:.0f} s")
            started, count = time.monotonic(), 0


def discard(answer: Any) -> None:
    """Be done with an answer whose body nobody wants."""
    answer.close()


def _failures() -> tuple[type[Exception], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError, OSError)


def read_failures() -> tuple[type[Exception], ...]:
    """Return what reading a body may raise; another attempt may go on from there."""
    return _failures()


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def _proxy(host: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    name = host.rpartition(":")[0] if ":" in host else host
    if proxy_bypass(name or host):
        return None
    proxies = getproxies()
    return proxies.get("https") or proxies.get("all")


def _retry_after(text: str | None) -> float | None:
    """Return the seconds to wait; a date is understood too."""
    if not text:
        return None
    if text.strip().isdecimal():
        return float(text)
    from email.utils import parsedate_to_datetime
    from time import time

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None
