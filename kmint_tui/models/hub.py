"""Finds files on the hub: a model's file, and the list of a repository's files.

Metadata, authentication, proxies and the endpoint (`HF_ENDPOINT`) are huggingface_hub's.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from convert.names import is_commit
from kmint_tui import paths
from kmint_tui.documents import parse_json
from kmint_tui.errors import ModelError, OfflineRefusal
from kmint_tui.models.hub_http import (
    STALL_SECONDS,
    Interrupted,
    answer,
    hub_errors,
    no_telemetry,
    refused,
)
from kmint_tui.models.registry import ModelEntry
from kmint_tui.models.remote import Remote, origin_commit

INFO_SECONDS = 120.0
"""Seconds in which the description of a repository must arrive."""

MAX_INFO_BYTES = 1 << 24
"""Largest accepted description of a repository."""


def find(entry: ModelEntry, *, quant: str | None = None, offline: str | None = None) -> Remote:
    """The entry's file on the hub: `quant` if given, else the first of its quants that exists.

    The commit is the entry's pin, else that of an earlier pull, else the newest. Raises
    OfflineRefusal when `offline` is a reason to stay offline, ModelError when the hub does not give
    the file.
    """
    if entry.repo is None:
        if entry.kind == "package":
            raise ModelError(
                f"{entry.id} ships inside kmint: there is nothing to fetch",
                fix=f"use it with `kmint mint OP --model {entry.id}`",
            )
        raise ModelError(
            f"{entry.id} is not on the hub",
            fix=f"`kmint models show {entry.id}` says how to get it",
        )
    if offline:
        raise OfflineRefusal(
            f"looking up {entry.repo} needs the network, and {offline} keeps kmint offline"
        )
    no_telemetry()
    from huggingface_hub import hf_hub_url

    wanted_commit = entry.revision or origin_commit(paths.models_dir() / entry.id, entry.repo)
    with hub_errors(entry.repo):
        info = _model_info(entry.repo, wanted_commit)
        revision = _commit(entry.repo, info.sha, wanted_commit)
        files = {
            file.rfilename: file
            for file in info.siblings or []
            if file.rfilename.lower().endswith(".gguf")
        }
        wanted = [quant] if quant else list(entry.quants)
        name = next(
            (name for want in wanted for name in sorted(files) if want.lower() in name.lower()),
            None,
        )
        if name is None:
            have = ", ".join(sorted(files)) or "no GGUF file"
            raise ModelError(
                f"{entry.repo} has no file of type {' or '.join(wanted)}; it has {have}",
                fix="choose one with --quant",
            )
        file = files[name]
        if file.size is None:
            fix = "fetch it by hand and `kmint models import` it"
            raise ModelError(f"the hub does not say how large {name} of {entry.repo} is", fix=fix)
        published = file.lfs.sha256 if file.lfs else None
        pinned = entry.sha256.get(name)
        if pinned and published and pinned != published:
            raise ModelError(
                f"{name}: the hub's sha256 is not the one in models.toml",
                fix="do not use it; check the model's page",
            )
        url = hf_hub_url(entry.repo, name, revision=revision)
        return Remote(
            repo=entry.repo,
            revision=revision,
            name=name,
            nbytes=file.size,
            sha256=pinned or published,
            licence=entry.licence,
            url=url,
        )


def listing(
    repo: str, *, revision: str | None = None, offline: str | None = None
) -> tuple[Remote, ...]:
    """Every file of a repository at one commit, except hidden ones.

    Raises OfflineRefusal, ModelError.
    """
    if offline:
        raise OfflineRefusal(
            f"looking up {repo} needs the network, and {offline} keeps kmint offline"
        )
    no_telemetry()
    from huggingface_hub import hf_hub_url

    with hub_errors(repo):
        info = _model_info(repo, revision)
        commit, licence = (
            _commit(repo, info.sha, revision),
            getattr(info.card_data, "license", None),
        )
        return tuple(
            Remote(
                repo=repo,
                revision=commit,
                name=file.rfilename,
                nbytes=file.size,
                sha256=file.lfs.sha256 if file.lfs else None,
                licence=licence if isinstance(licence, str) else None,
                url=hf_hub_url(repo, file.rfilename, revision=commit),
            )
            for file in info.siblings or []
            if file.size is not None and not _is_hidden(file.rfilename)
        )


def _model_info(repo: str, revision: str | None) -> Any:
    """The hub's `ModelInfo` of a repository with its files.

    The hub's own client would read an answer of any length, for any time. Raises ModelError, and
    ValueError for an invalid answer.
    """
    from huggingface_hub import ModelInfo, constants

    page = f"{constants.ENDPOINT}/api/models/{repo}"
    page += f"/revision/{quote(revision, safe='')}?blobs=true" if revision else "?blobs=true"
    content, started = bytearray(), time.monotonic()
    try:
        with answer(page, {}, STALL_SECONDS) as response:
            if response.status_code != 200:
                raise refused(response.status_code, repo)
            for block in response.iter_raw():
                content += block
                if time.monotonic() - started > INFO_SECONDS:
                    raise ModelError(
                        f"{repo}: the hub's answer did not end within {INFO_SECONDS:.0f} s",
                        fix="check HF_ENDPOINT and the network",
                    )
                if len(content) > MAX_INFO_BYTES:
                    break
    except Interrupted as error:
        raise ModelError(
            f"{constants.ENDPOINT} cannot be reached ({error})",
            fix="check the network and proxy settings",
        ) from error
    document = parse_json(bytes(content), most_bytes=MAX_INFO_BYTES)
    fields = {key: document.get(key) for key in ("id", "sha", "siblings", "cardData")}
    return ModelInfo(**fields)  # type: ignore[no-untyped-call]


def _commit(repo: str, answered: object, wanted: str | None) -> str:
    """The commit in the hub's answer.

    Raises ModelError unless it is a commit, and the `wanted` one.
    """
    if not isinstance(answered, str) or not is_commit(answered):
        reason = f"the hub answers with {ascii(answered)[:60]} instead of a commit"
        raise ModelError(f"{repo}: {reason}", fix="check HF_ENDPOINT and the repository's page")
    if wanted not in (None, answered):
        reason = f"the hub answers with commit {answered}, kmint wants commit {wanted}"
        fix = "check `revision` in models.toml; `kmint models rm ID` forgets the commit of a pull"
        raise ModelError(f"{repo}: {reason}", fix=fix)
    return answered


def _is_hidden(name: str) -> bool:
    """True for a file such as .gitattributes, which kmint never fetches."""
    return any(part.startswith(".") and part.strip(".") for part in name.split("/"))
