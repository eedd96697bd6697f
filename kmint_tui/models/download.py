"""The only module that opens a socket: finds a model's file on the hub and fetches it.

Metadata, authentication, proxies and the endpoint (`HF_ENDPOINT`) are huggingface_hub's. The transfer itself is done here,
through its HTTP client, because the hub client starts anew after a kill: bytes go to NAME.part with a small NAME.part.json
beside it, a later run continues where that ends if the server's etag is still the same, and NAME appears only when size and
sha256 are right. `head` reads only the first bytes, so that a file can be judged before it is fetched.

Limits: one connection; plain HTTP ranges, no xet. Without a published sha256 only the size is checked, and that is said.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kmint_tui.errors import KmintError, ModelError, OfflineRefusal, TimedOut, storage_error
from kmint_tui.models import digest
from kmint_tui.models.gguf_header import GgufError, Header, parse_header
from kmint_tui.models.part import Part, check_space, locked
from kmint_tui.models.registry import ModelEntry
from kmint_tui.models.remote import Remote

TRIES_WITHOUT_PROGRESS = 5
FIRST_LOOK, LARGEST_HEAD = 1 << 20, 1 << 26
LONGEST_WAIT_SECONDS = 60.0
STALL_SECONDS = 30.0

Progress = Callable[[int, int], None]


class _Interrupted(Exception):
    """The transfer broke off and may be continued; the message says how."""


def find(entry: ModelEntry, *, quant: str | None = None, offline: str | None = None) -> Remote:
    """The entry's file on the hub: `quant` if given, else the first of the entry's quants that the repository has.

    Raises OfflineRefusal when `offline` names a reason to stay offline, ModelError when the hub does not have or give it.
    """
    if entry.repo is None:
        if entry.kind == "package":
            raise ModelError(
                f"{entry.id} ships inside kmint: there is nothing to fetch", fix=f"use it with `kmint mint OP --model {entry.id}`"
            )
        raise ModelError(f"{entry.id} is not on the hub", fix=f"`kmint models show {entry.id}` says how to get it")
    if offline:
        raise OfflineRefusal(f"looking up {entry.repo} needs the network, and {offline} keeps kmint offline")
    _no_telemetry()
    from huggingface_hub import HfApi, hf_hub_url

    with _hub_errors(entry.repo):
        info = HfApi().model_info(entry.repo, revision=entry.revision, files_metadata=True, timeout=STALL_SECONDS)
    files = {file.rfilename: file for file in info.siblings or [] if file.rfilename.lower().endswith(".gguf")}
    wanted = [quant] if quant else list(entry.quants)
    name = next((name for want in wanted for name in sorted(files) if want.lower() in name.lower()), None)
    if name is None:
        have = ", ".join(sorted(files)) or "no GGUF file"
        raise ModelError(f"{entry.repo} has no file of type {' or '.join(wanted)}; it has {have}", fix="choose one with --quant")
    file, revision = files[name], info.sha or entry.revision or "main"
    if file.size is None:
        raise ModelError(f"the hub does not say how large {name} of {entry.repo} is", fix="fetch it by hand and `kmint models import` it")
    published = file.lfs.sha256 if file.lfs else None
    pinned = entry.sha256.get(name)
    if pinned and published and pinned != published:
        raise ModelError(f"{name}: the hub's sha256 is not the one in models.toml", fix="do not use it; check the model's page")
    return Remote(
        entry.repo, revision, name, file.size, pinned or published, entry.licence, hf_hub_url(entry.repo, name, revision=revision)
    )


def listing(repo: str, *, revision: str | None = None, offline: str | None = None) -> tuple[Remote, ...]:
    """Every file of a repository at one commit. Raises OfflineRefusal, ModelError."""
    if offline:
        raise OfflineRefusal(f"looking up {repo} needs the network, and {offline} keeps kmint offline")
    _no_telemetry()
    from huggingface_hub import HfApi, hf_hub_url

    with _hub_errors(repo):
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=STALL_SECONDS)
    commit, licence = info.sha or revision or "main", getattr(info.card_data, "license", None)
    return tuple(
        Remote(
            repo,
            commit,
            file.rfilename,
            file.size,
            file.lfs.sha256 if file.lfs else None,
            licence if isinstance(licence, str) else None,
            hf_hub_url(repo, file.rfilename, revision=commit),
        )
        for file in info.siblings or []
        if file.size is not None
    )


def head(remote: Remote, *, stall_seconds: float = STALL_SECONDS, offline: str | None = None) -> Header:
    """The head of the file on the hub; no more of it is read than that takes. Raises OfflineRefusal, ModelError, TimedOut."""
    if offline:
        raise OfflineRefusal(f"looking at {remote.name} needs the network, and {offline} keeps kmint offline")
    content, enough = bytearray(), FIRST_LOOK
    try:
        with _answer(remote, {}, stall_seconds) as response:
            if response.status_code != 200:
                raise _refused(response.status_code, remote.repo)
            for block in response.iter_bytes():
                content += block
                if enough <= len(content) < min(remote.nbytes, LARGEST_HEAD):
                    with contextlib.suppress(GgufError):
                        return parse_header(bytes(content), remote.nbytes)
                    enough *= 4
                elif len(content) >= LARGEST_HEAD:
                    break
        return parse_header(bytes(content), remote.nbytes)
    except _Interrupted as error:
        raise TimedOut(f"{remote.name}: {error}", fix="check the network and try again") from error
    except GgufError as error:
        raise ModelError(f"{remote.name} of {remote.repo} is not a sound GGUF file: {error}", fix="choose another with --quant") from error


def fetch(
    remote: Remote,
    folder: Path,
    *,
    progress: Progress | None = None,
    limit_rate: float | None = None,
    stall_seconds: float = STALL_SECONDS,
    offline: str | None = None,
) -> Path:
    """Fetch into `folder` and return the finished file; at once when it is there already. `limit_rate` is in bytes a second.

    Two processes may call this for the same file: the second waits for the first. Raises OfflineRefusal, ModelError,
    StorageError, TimedOut; KeyboardInterrupt passes through, and what arrived is kept for the next call.
    """
    target = folder / Path(remote.name).name
    try:
        with locked(folder / f".{target.name}.lock"):
            if target.exists() and target.stat().st_size == remote.nbytes:
                if remote.sha256 not in (None, digest.sha256(target)):
                    fix = "take it out with `kmint models rm`, then pull again"
                    raise ModelError(f"{target} is not the published file (its sha256 differs)", fix=fix)
                return target
            if offline:
                raise OfflineRefusal(f"fetching {remote.name} needs the network, and {offline} keeps kmint offline")
            part = Part(remote, target)
            check_space(folder, remote.nbytes - part.size)
            _transfer(part, progress, limit_rate, stall_seconds)
            part.finish()
    except OSError as error:
        raise storage_error(target, error) from error
    return target


def _no_telemetry() -> None:
    """Keep the hub's client, once it is imported, from telling the hub about this machine, and from asking it who kmint's user is."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def _transfer(part: Part, progress: Progress | None, limit_rate: float | None, stall_seconds: float) -> None:
    idle_tries = 0
    while part.size < part.remote.nbytes:
        before = part.size
        try:
            _one_request(part, progress, limit_rate, stall_seconds)
            reason: Exception = _Interrupted(f"the server ended early, at {part.size} of {part.remote.nbytes} bytes")
        except _Interrupted as error:
            reason = error
        if part.size >= part.remote.nbytes:
            return
        idle_tries = 0 if part.size > before else idle_tries + 1
        if idle_tries >= TRIES_WITHOUT_PROGRESS:
            fix = "what arrived is kept; run the same command again to go on"
            raise TimedOut(f"{part.remote.name}: {reason}, {TRIES_WITHOUT_PROGRESS} times in a row", fix=fix)


def _one_request(part: Part, progress: Progress | None, limit_rate: float | None, stall_seconds: float) -> None:
    """One GET from where the part ends. Raises _Interrupted when it may be tried again."""
    remote = part.remote
    headers = {}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if part.etag and not part.etag.startswith("W/"):
            headers["If-Range"] = part.etag
    started, received = time.monotonic(), 0
    with _answer(remote, headers, stall_seconds) as response:
        _judge_status(part, response)
        with part.path.open("ab") as file:
            for block in response.iter_bytes():
                if part.size + len(block) > remote.nbytes:
                    part.remove()
                    raise ModelError(f"{remote.name}: the server sent more than the {remote.nbytes} bytes it announced", fix="pull again")
                file.write(block)
                file.flush()
                part.digest.update(block)
                part.size += len(block)
                received += len(block)
                if progress is not None:
                    progress(part.size, remote.nbytes)
                if limit_rate:
                    time.sleep(max(0.0, received / limit_rate - (time.monotonic() - started)))


@contextlib.contextmanager
def _answer(remote: Remote, headers: dict[str, str], stall_seconds: float) -> Iterator[Any]:
    """The streamed answer to a GET, redirects followed. Raises _Interrupted for what may be tried again."""
    _no_telemetry()
    from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]  # public, but not re-exported for mypy

    headers = {**build_hf_headers(), "Accept-Encoding": "identity", **headers}
    try:
        with get_session().stream("GET", remote.url, headers=headers, timeout=stall_seconds, follow_redirects=True) as response:
            yield response
    except (KmintError, _Interrupted, OSError):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise _Interrupted(f"{type(error).__name__}: {str(error)[:120] or 'no answer'}") from error
        raise


def _judge_status(part: Part, response: Any) -> None:
    """Pass a usable answer; wait and raise _Interrupted for one that may get better; raise ModelError for the rest."""
    status, remote = response.status_code, part.remote
    if status == 206:
        start = response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
        total = response.headers.get("content-range", "").rpartition("/")[2]
        etag = response.headers.get("etag")
        if start != str(part.size) or total not in ("*", str(remote.nbytes)) or (part.etag and etag and etag != part.etag):
            part.restart()
            raise _Interrupted("the server's file changed, starting anew")
        return
    if status == 200:
        if part.size:
            part.restart()
        part.begin(response.headers.get("etag"))
        return
    if status == 416:
        part.restart()
        raise _Interrupted("the server refused to continue, starting anew")
    if status in (408, 429) or status >= 500:
        _wait(response.headers.get("retry-after"))
        raise _Interrupted(f"the server answered {status}")
    raise _refused(status, remote.repo)


def _wait(retry_after: str | None) -> None:
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else 1.0
    if seconds > LONGEST_WAIT_SECONDS:
        raise TimedOut(f"the server asks to wait {seconds:.0f} s", fix="run the same command again later; what arrived is kept")
    time.sleep(seconds)


def _refused(status: int, repo: str) -> ModelError:
    if status in (401, 403):
        return ModelError(f"{repo}: access refused ({status})", fix="accept the licence on its page, then log in with `hf auth login`")
    if status == 404:
        return ModelError(f"{repo}: not found on the hub (404)", fix="check the name and revision in models.toml")
    return ModelError(f"{repo}: the hub answered {status}", fix="try again later")


@contextlib.contextmanager
def _hub_errors(repo: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into kmint's errors."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled as error:
        raise OfflineRefusal(f"looking up {repo} needs the network, and HF_HUB_OFFLINE is set") from error
    except HfHubHTTPError as error:
        raise _refused(error.response.status_code, repo) from error
    except LocalEntryNotFoundError as error:
        raise ModelError(f"{repo}: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            where = os.environ.get("HF_ENDPOINT", "the hub")
            raise ModelError(f"{where} cannot be reached ({type(error).__name__})", fix="check the network and proxy settings") from error
        raise
