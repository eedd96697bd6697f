"""A file on the hub, as the hub describes it, and the record of a fetched one. Opens no connection.

NAME.origin.json records the repository and commit of a fetched file. A branch moves; a commit does
not. Where models.toml pins no commit, later pulls use the commit of the first.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from convert import files
from convert.names import BadName, accepted_name, is_commit, is_sha256
from kmint_tui.documents import read_json
from kmint_tui.errors import ModelError

MOST_BYTES = 1 << 62
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
ORIGIN = ".origin.json"


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file on the hub at a fixed commit.

    `sha256` is None for a file in plain git, for which the hub publishes none. Raises ModelError
    for a commit, name, size or digest that no honest hub gives: commit and name become paths here.
    """

    repo: str
    revision: str
    name: str
    nbytes: int
    sha256: str | None
    licence: str | None
    url: str

    def __post_init__(self) -> None:
        try:
            accepted_name(self.name, folders=True)
        except BadName as error:
            raise _lie(self.repo, f"a file whose name {error}") from None
        if not is_commit(self.revision):
            raise _lie(
                self.repo,
                f"{ascii(self.revision)[:60]}, which is not a commit of 40 hexadecimal digits",
            )
        if type(self.nbytes) is not int or not 0 <= self.nbytes <= MOST_BYTES:
            raise _lie(self.repo, f"a size of {ascii(self.nbytes)[:60]} bytes")
        if self.sha256 is not None and not is_sha256(self.sha256):
            raise _lie(self.repo, f"{ascii(self.sha256)[:60]}, which is not a sha256")


def is_repo(text: str) -> bool:
    """True for OWNER/NAME in the characters that the hub allows."""
    return _REPO.fullmatch(text) is not None and ".." not in text


def _lie(repo: str, what: str) -> ModelError:
    return ModelError(
        f"the server that answers for {repo} gives {what}; kmint does not use it",
        fix="check HF_ENDPOINT and the proxy, or fetch the files by other means",
    )


def record_origin(target: Path, remote: Remote) -> None:
    """Write the origin of `target`. Raises OSError."""
    files.write_text(
        target.with_name(target.name + ORIGIN), json.dumps(asdict(remote), indent=1) + "\n"
    )


def recorded_origin(target: Path) -> Remote | None:
    """The origin of a file in the store; None without a record."""
    try:
        return Remote(**read_json(target.with_name(target.name + ORIGIN)))
    except (OSError, ValueError, TypeError, ModelError):
        return None


def origin_commit(folder: Path, repo: str) -> str | None:
    """The commit of `repo` that filled a model's folder; None without files of it."""
    notes = sorted(folder.glob("*" + ORIGIN), key=lambda note: note.name)
    found = (recorded_origin(note.with_name(note.name.removesuffix(ORIGIN))) for note in notes)
    return next(
        (remote.revision for remote in found if remote is not None and remote.repo == repo), None
    )
