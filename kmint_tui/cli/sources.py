"""The sources of a conversion's base and adapter: a local folder, or OWNER/NAME on the hub, which
kmint first fetches into the store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui import paths
from kmint_tui.cli.models_pull import TransferProgress
from kmint_tui.cli.state import State
from kmint_tui.core.offline import offline_reason
from kmint_tui.documents import BadDocument, read_json
from kmint_tui.errors import ModelError, OfflineRefusal, UsageError

if TYPE_CHECKING:
    from kmint_tui.models.snapshot import HubFolder


def base_folder(state: State, text: str, *, weights: bool, fetch_weights: bool = True) -> Path:
    """The folder of a base checkpoint; without `weights` only its config is needed.

    With `fetch_weights` off, weights that are not here are refused rather than fetched. Raises
    KmintError.
    """
    from kmint_tui.models import snapshot

    if not snapshot.is_hub_id(text):
        return _folder(text, "base")
    source = _look_up(state, text, None)
    if weights and not fetch_weights and not any(source.folder.glob("*.safetensors")):
        raise UsageError(
            f"--plan writes nothing, and the weights of {text} are not here",
            fix="run without --plan, or give a folder",
        )
    return _fetch(
        state, source, snapshot.CHECKPOINT if weights else snapshot.CONFIG, weights=weights
    )


def adapter_folder(state: State, text: str, subfolder: str | None) -> Path:
    """The folder of an adapter. Raises KmintError."""
    from kmint_tui.models import snapshot

    if not snapshot.is_hub_id(text):
        return _folder(str(paths.expanded(text) / (subfolder or "")), "adapter")
    return _fetch(state, _look_up(state, text, subfolder), snapshot.ADAPTER, weights=False)


def config_of_base(state: State, adapter: Path) -> Path:
    """A folder with the config.json of the base that the adapter names.

    It is the adapter's own folder, a local folder, or a folder fetched from the hub.
    """
    from convert.errors import SourceError
    from convert.lora_job import base_of
    from kmint_tui.models.snapshot import is_hub_id

    try:
        return base_of(adapter)
    except SourceError:
        try:
            config = read_json(adapter / "adapter_config.json")
        except (OSError, BadDocument):
            config = None
        named = config.get("base_model_name_or_path") if isinstance(config, dict) else None
        if not isinstance(named, str) or not is_hub_id(named):
            raise
        return base_folder(state, named, weights=False)


def _look_up(state: State, repo: str, subfolder: str | None) -> HubFolder:
    from kmint_tui.models.snapshot import look_up

    offline = offline_reason(flag=state.offline)
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
    err.note(
        f"fetching {source.repo} at {source.files[0].revision[:12]}, licence {licence}, into {source.folder}"
    )
    folder = fetch(
        source, names, weights=weights, progress=lambda remote: TransferProgress(err, remote)
    )
    err.clear()
    return folder


def _folder(text: str, what: str) -> Path:
    path = paths.expanded(text)
    if path.is_file():
        raise ModelError(f"{what} {text!r} is a file", fix=f"give its folder: {path.parent}")
    if not path.is_dir():
        raise ModelError(
            f"{what} {text!r} is not a folder",
            fix="give the path of a downloaded folder, or OWNER/NAME on the hub",
        )
    return path
