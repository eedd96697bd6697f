"""The parts of a checkpoint or an adapter on the hub that a conversion reads, fetched into the store.

They lie in `hub/OWNER--NAME/COMMIT` below the models' folder, so that a new commit never mixes with an old one, and an
interrupted fetch goes on where it ended. Limits: safetensors only, at the repository's root or in one folder of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.models import download
from kmint_tui.models.checkpoints import folder_of
from kmint_tui.models.download import Progress
from kmint_tui.models.remote import Remote

INDEX = "model.safetensors.index.json"
CONFIG = ("config.json",)
CHECKPOINT = (
    *CONFIG,
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
ADAPTER = ("adapter_config.json", "adapter_model.safetensors", *CONFIG)
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class HubFolder:
    """A folder of a repository at one commit, and where it lies here once fetched."""

    repo: str
    files: tuple[Remote, ...]
    folder: Path

    def total(self) -> int:
        """Bytes of all files of the repository's folder."""
        return sum(file.nbytes for file in self.files)


def is_hub_id(text: str) -> bool:
    """Whether `text` reads as OWNER/NAME and is not a path that exists."""
    return bool(_ID.fullmatch(text)) and not Path(text).expanduser().exists()


def look_up(repo: str, *, subfolder: str | None = None, offline: str | None = None) -> HubFolder:
    """The files of a repository, or of one folder of it. Raises OfflineRefusal, ModelError, StorageError."""
    prefix = f"{subfolder.strip('/')}/" if subfolder else ""
    listed = download.listing(repo, offline=offline)
    files = tuple(file for file in listed if file.name.startswith(prefix) and "/" not in file.name.removeprefix(prefix))
    if not files:
        raise ModelError(f"{repo} has no folder {subfolder!r}", fix="check --subfolder on the repository's page")
    home = paths.private_dir(folder_of(repo) / files[0].revision)
    return HubFolder(repo, files, paths.private_dir(home / prefix) if prefix else home)


def fetch(source: HubFolder, names: Sequence[str], *, weights: bool, progress: Callable[[Remote], Progress]) -> Path:
    """Fetch those of `names` that the folder has, and with `weights` its safetensors shards; returns the local folder.

    Raises ModelError (also when there are no weights), StorageError, TimedOut.
    """
    by_name = {file.name.rsplit("/", 1)[-1]: file for file in source.files}

    def get(name: str) -> Path:
        return download.fetch(by_name[name], source.folder, progress=progress(by_name[name]))

    for name in names:
        if name in by_name:
            get(name)
    if not weights:
        return source.folder
    if INDEX in by_name:
        shards = _shards(get(INDEX), source.repo)
    else:
        shards = ["model.safetensors"]
    missing = [name for name in shards if name not in by_name]
    if missing:
        raise ModelError(f"{source.repo} has no {missing[0]}", fix="only checkpoints in safetensors can be converted")
    for name in shards:
        get(name)
    return source.folder


def _shards(index: Path, repo: str) -> list[str]:
    try:
        listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{repo}: its {INDEX} cannot be read ({error})", fix="check the repository's page") from error
    return sorted({str(name) for name in listed})
