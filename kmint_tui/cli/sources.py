"""Where a conversion's base and adapter come from: a folder here, or OWNER/NAME on the hub, fetched into the store first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui.cli.models_pull import TransferProgress, offline_reason
from kmint_tui.cli.state import State
from kmint_tui.errors import ModelError, OfflineRefusal, UsageError

if TYPE_CHECKING:
    from kmint_tui.models.snapshot import HubFolder


def base_folder(state: State, text: str, *, weights: bool, fetch_weights: bool = True) -> Path:
    """The folder of a base checkpoint; without `weights` only its config is needed.

    With `fetch_weights` off, weights that are not here are refused rather than fetched. Raises KmintError.
    """
    from kmint_tui.models import snapshot

    if not snapshot.is_hub_id(text):
        return _folder(text, "base")
    source = _look_up(state, text, None)
    if weights and not fetch_weights and not any(source.folder.glob("*.safetensors")):
        raise UsageError(f"--plan writes nothing, and the weights of {text} are not here", fix="run without --plan, or give a folder")
    return _fetch(state, source, snapshot.CHECKPOINT if weights else snapshot.CONFIG, weights=weights)


def adapter_folder(state: State, text: str, subfolder: str | None) -> Path:
    """The folder of an adapter. Raises KmintError."""
    from kmint_tui.models import snapshot

    if not snapshot.is_hub_id(text):
        return _folder(str(Path(text).expanduser() / (subfolder or "")), "adapter")
    return _fetch(state, _look_up(state, text, subfolder), snapshot.ADAPTER, weights=False)


def config_of_base(state: State, adapter: Path) -> Path:
    """A folder with the config.json of the base that the adapter names: beside the adapter, here, or on the hub."""
    from convert.errors import SourceError
    from convert.lora_job import base_of
    from kmint_tui.models.snapshot import is_hub_id

    try:
        return base_of(adapter)
    except SourceError:
        try:
            named = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8")).get("base_model_name_or_path")
        except (OSError, ValueError, AttributeError):
            named = None
        if not isinstance(named, str) or not is_hub_id(named):
            raise
        return base_folder(state, named, weights=False)


def _look_up(state: State, repo: str, subfolder: str | None) -> HubFolder:
    from kmint_tui.models.snapshot import look_up

    offline = offline_reason(state)
    if offline:
        raise OfflineRefusal(
            f"{repo!r} is no folder here; looking for it on the hub needs the network, and {offline} keeps kmint offline",
            fix="give the folder of a downloaded checkpoint",
        )
    return look_up(repo, subfolder=subfolder)


def _fetch(state: State, source: HubFolder, names: tuple[str, ...], *, weights: bool) -> Path:
    from kmint_tui.models.snapshot import fetch

    err = state.err
    licence = source.files[0].licence or "unknown"
    err.note(f"fetching {source.repo} at {source.files[0].revision[:12]}, licence {licence}, into {source.folder}")
    folder = fetch(source, names, weights=weights, progress=lambda remote: TransferProgress(err, remote))
    err.clear()
    return folder


def _folder(text: str, what: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise ModelError(f"{what} {text!r} is not a folder", fix="give the path of a downloaded folder, or OWNER/NAME on the hub")
    return path
