"""Fetches a model's file from the hub.

The hub's client starts again from zero after a kill, so this module transfers files itself. Bytes
go to NAME.part, with its record in NAME.part.json. A later run continues there if the server's etag
is still the same. NAME appears only when size and sha256 are right. `head` reads only the first
bytes, so that a file can be checked before it is fetched.

Limits: one connection; plain HTTP ranges, no xet. Without a published sha256 only the size is
checked, and the message says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convert.gguf_header import GgufError, Header, parse_header
from kmint_tui.errors import ModelError, OfflineRefusal, TimedOut, storage_error
from kmint_tui.models import digest
from kmint_tui.models.hub_http import STALL_SECONDS, Interrupted, answer, refused
from kmint_tui.models.part import Part, check_space, locked
from kmint_tui.models.remote import Remote

TRIES_WITHOUT_PROGRESS = 5
"""Number of requests in a row without a new byte that end a transfer."""

FIRST_HEAD, LARGEST_HEAD = 1 << 20, 1 << 26
"""Bytes before the first try to read a head, and the most that are read for one."""

HEAD_SECONDS = 600.0
"""Seconds in which a head must arrive."""

LONGEST_WAIT_SECONDS = 60.0
"""Longest wait that a server may ask for."""

Progress = Callable[[int, int], None]


def head(
    remote: Remote, *, stall_seconds: float = STALL_SECONDS, offline: str | None = None
) -> Header:
    """The head of the file on the hub, from as few bytes as possible.

    Raises OfflineRefusal, ModelError, TimedOut.
    """
    if offline:
        raise OfflineRefusal(
            f"reading {remote.name} needs the network, and {offline} keeps kmint offline"
        )
    content, enough, started = bytearray(), FIRST_HEAD, time.monotonic()
    try:
        with answer(remote.url, {}, stall_seconds) as response:
            if response.status_code != 200:
                raise refused(response.status_code, remote.repo)
            for block in response.iter_raw():
                content += block
                if time.monotonic() - started > HEAD_SECONDS:
                    raise Interrupted(f"its head did not arrive within {HEAD_SECONDS:.0f} s")
                if enough <= len(content) < min(remote.nbytes, LARGEST_HEAD):
                    with contextlib.suppress(GgufError):
                        return parse_header(bytes(content), remote.nbytes)
                    enough *= 4
                elif len(content) >= LARGEST_HEAD:
                    break
        return parse_header(bytes(content), remote.nbytes)
    except Interrupted as error:
        raise TimedOut(f"{remote.name}: {error}", fix="check the network and try again") from error
    except GgufError as error:
        raise ModelError(
            f"{remote.name} of {remote.repo} is not a sound GGUF file: {error}",
            fix="choose another with --quant",
        ) from error


def fetch(
    remote: Remote,
    folder: Path,
    *,
    progress: Progress | None = None,
    limit_rate: float | None = None,
    stall_seconds: float = STALL_SECONDS,
    offline: str | None = None,
) -> Path:
    """Fetch into `folder` and return the finished file; at once if it exists already.

    `limit_rate` is in bytes a second. A second process with the same file waits for the first.
    Raises OfflineRefusal, ModelError, StorageError, TimedOut. KeyboardInterrupt passes through, and
    the next call continues with the part that arrived.
    """
    target = folder / Path(remote.name).name
    try:
        with locked(folder / f".{target.name}.lock"):
            if target.exists() and target.stat().st_size == remote.nbytes:
                if remote.sha256 not in (None, digest.sha256(target)):
                    fix = "remove it with `kmint models rm`, then pull again"
                    raise ModelError(
                        f"{target} is not the published file (its sha256 differs)", fix=fix
                    )
                return target
            if offline:
                raise OfflineRefusal(
                    f"fetching {remote.name} needs the network, and {offline} keeps kmint offline"
                )
            part = Part(remote, target)
            check_space(folder, remote.nbytes - part.size)
            _transfer(part, progress, limit_rate, stall_seconds)
            part.finish()
    except OSError as error:
        raise storage_error(target, error) from error
    return target


def _transfer(
    part: Part, progress: Progress | None, limit_rate: float | None, stall_seconds: float
) -> None:
    idle_tries = 0
    while part.size < part.remote.nbytes:
        before = part.size
        try:
            _one_request(part, progress, limit_rate, stall_seconds)
            reason: Exception = Interrupted(
                f"the server ended early, at {part.size} of {part.remote.nbytes} bytes"
            )
        except Interrupted as error:
            reason = error
        if part.size >= part.remote.nbytes:
            return
        idle_tries = 0 if part.size > before else idle_tries + 1
        if idle_tries >= TRIES_WITHOUT_PROGRESS:
            fix = "the part that arrived is kept; run the same command again to continue"
            raise TimedOut(
                f"{part.remote.name}: {reason}, {TRIES_WITHOUT_PROGRESS} times in a row", fix=fix
            )


def _one_request(
    part: Part, progress: Progress | None, limit_rate: float | None, stall_seconds: float
) -> None:
    """One GET from the end of the part. Raises Interrupted when another try may help."""
    remote = part.remote
    headers = {}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if part.etag and not part.etag.startswith("W/"):
            headers["If-Range"] = part.etag
    started, received = time.monotonic(), 0
    with answer(remote.url, headers, stall_seconds) as response:
        _judge_status(part, response)
        with part.path.open("ab") as file:
            for block in response.iter_raw():
                if part.size + len(block) > remote.nbytes:
                    part.remove()
                    raise ModelError(
                        f"{remote.name}: the server sent more than {remote.nbytes} bytes",
                        fix="pull again",
                    )
                file.write(block)
                file.flush()
                part.digest.update(block)
                part.size += len(block)
                received += len(block)
                if progress is not None:
                    progress(part.size, remote.nbytes)
                if limit_rate:
                    time.sleep(max(0.0, received / limit_rate - (time.monotonic() - started)))


def _judge_status(part: Part, response: Any) -> None:
    """Accept a usable answer.

    Raises Interrupted for one that may improve, ModelError for the rest.
    """
    status, remote = response.status_code, part.remote
    if status == 206:
        start = response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
        total = response.headers.get("content-range", "").rpartition("/")[2]
        etag = response.headers.get("etag")
        if (
            start != str(part.size)
            or total not in ("*", str(remote.nbytes))
            or (part.etag and etag and etag != part.etag)
        ):
            part.restart()
            raise Interrupted("the server's file changed, starting again")
        return
    if status == 200:
        if part.size:
            part.restart()
        part.begin(response.headers.get("etag"))
        return
    if status == 416:
        part.restart()
        raise Interrupted("the server refused to continue, starting again")
    if status in (408, 429) or status >= 500:
        _wait(response.headers.get("retry-after"))
        raise Interrupted(f"the server answered {status}")
    raise refused(status, remote.repo)


def _wait(retry_after: str | None) -> None:
    seconds = (
        float(retry_after)
        if retry_after and retry_after.isascii() and retry_after.isdigit()
        else 1.0
    )
    if seconds > LONGEST_WAIT_SECONDS:
        raise TimedOut(
            f"the server asks to wait {seconds:.0f} s",
            fix="run the same command again later; the part that arrived is kept",
        )
    time.sleep(seconds)
