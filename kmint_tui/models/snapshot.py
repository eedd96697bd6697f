"""Fetches the parts of a checkpoint or an adapter that a conversion reads into the store.

They lie in `hub/OWNER--NAME/COMMIT` below the models' folder. So a new commit never mixes with an
old one, and an interrupted fetch continues. Limits: safetensors only, at the repository's root or
in one folder of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from convert.names import BadName, accepted_name
from kmint_tui import paths
from kmint_tui.documents import read_json
from kmint_tui.errors import ModelError
from kmint_tui.models import download, hub
from kmint_tui.models.checkpoints import folder_of
from kmint_tui.models.download import Progress
from kmint_tui.models.remote import Remote, is_repo

INDEX = "model.safetensors.index.json"
CONFIG = ("config.json",)
TOKENIZER = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
CHECKPOINT = (*CONFIG, *TOKENIZER)
# An adapter that added tokens brings its own tokenizer.
ADAPTER = ("adapter_config.json", "adapter_model.safetensors", *CONFIG, *TOKENIZER)


@dataclass(frozen=True)
class HubFolder:
    """A folder of a repository at one commit, and its local place once fetched."""

    repo: str
    files: tuple[Remote, ...]
    folder: Path

    def total(self) -> int:
        """Bytes of all files of the repository's folder."""
        return sum(file.nbytes for file in self.files)


def is_hub_id(text: str) -> bool:
    """True for OWNER/NAME that is not an existing path."""
    return is_repo(text) and not paths.expanded(text).exists()


def look_up(repo: str, *, subfolder: str | None = None, offline: str | None = None) -> HubFolder:
    """The files of a repository, or of one folder of it.

    Raises OfflineRefusal, ModelError, StorageError.
    """
    prefix = f"{subfolder.strip('/')}/" if subfolder else ""
    listed = hub.listing(repo, offline=offline)
    files = tuple(
        file
        for file in listed
        if file.name.startswith(prefix) and "/" not in file.name.removeprefix(prefix)
    )
    if not files:
        raise ModelError(
            f"{repo} has no folder {subfolder!r}", fix="check --subfolder on the repository's page"
        )
    home = paths.private_dir(folder_of(repo) / files[0].revision)
    return HubFolder(repo, files, paths.private_dir(home / prefix) if prefix else home)


def fetch(
    source: HubFolder,
    names: Sequence[str],
    *,
    weights: bool,
    progress: Callable[[Remote], Progress],
) -> Path:
    """Fetch those of `names` that the folder has, and with `weights` its safetensors shards.

    Returns the local folder. Raises ModelError (also without weights), StorageError, TimedOut.
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
        raise ModelError(
            f"{source.repo} has no {missing[0]}",
            fix="only checkpoints in safetensors can be converted",
        )
    for name in shards:
        get(name)
    return source.folder


def _shards(index: Path, repo: str) -> list[str]:
    """The files that an index names.

    Raises ModelError, also for a name that is not a plain name of a safetensors file.
    """
    try:
        listed = read_json(index)["weight_map"].values()
        names = sorted({accepted_name(name) for name in listed})
        strange = next((name for name in names if not name.endswith(".safetensors")), None)
        if strange is not None:
            raise BadName(f"{strange!r} is not a safetensors file")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{repo}: its {INDEX} cannot be used ({error})", fix="check the repository's page"
        ) from error
    return names
