"""The places where kmint keeps files.

They are functions, because each call reads the environment. A folder appears when kmint first
writes to it. `KMINT_HOME` moves all places below one folder; `KMINT_MODELS_DIR` moves only the
models.
"""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import platformdirs

from kmint_tui.errors import storage_error

_APP = "kmint"


def expanded(text: str | Path) -> Path:
    """A path with the user's home in place of `~`.

    A `~` with an unknown user stays, where `Path.expanduser` raises RuntimeError.
    """
    return Path(os.path.expanduser(text))


def settle() -> None:
    """Make the user's own places absolute, because child processes start in another folder."""
    for name in ("KMINT_HOME", "KMINT_MODELS_DIR"):
        if place := os.environ.get(name):
            os.environ[name] = str(expanded(place).absolute())


def _base(kind: str, default: Callable[[str], str]) -> Path:
    home = os.environ.get("KMINT_HOME")
    return expanded(home) / kind if home else Path(default(_APP))


def config_dir() -> Path:
    """Settings and the user's own `models.toml`."""
    return _base("config", platformdirs.user_config_dir)


def data_dir() -> Path:
    """The history, the books and the models."""
    return _base("data", platformdirs.user_data_dir)


def cache_dir() -> Path:
    """Things that can be made again: compiled kernels, baselines, measurements."""
    return _base("cache", platformdirs.user_cache_dir)


def state_dir() -> Path:
    """Logs."""
    return _base("state", platformdirs.user_state_dir)


def runtime_dir() -> Path:
    """The socket of a running session; gone after a restart of the machine."""
    with warnings.catch_warnings():
        # platformdirs warns if the system has no such folder, and names another one.
        warnings.simplefilter("ignore")
        return _base("run", platformdirs.user_runtime_dir)


def config_file() -> Path:
    """The settings file."""
    return config_dir() / "config.toml"


def user_models_file() -> Path:
    """The user's additions to the model registry."""
    return config_dir() / "models.toml"


def models_dir() -> Path:
    """The model store."""
    override = os.environ.get("KMINT_MODELS_DIR")
    return expanded(override) if override else data_dir() / "models"


def history_file() -> Path:
    """The database of everything minted."""
    return data_dir() / "history.db"


def log_dir() -> Path:
    """Logs of the smith, the referee and internal errors."""
    return state_dir() / "logs"


def private_dir(path: Path) -> Path:
    """Make `path` with its parents, readable by their owner only. Raises StorageError."""
    try:
        for place in reversed((path, *path.parents)):
            if not place.exists():
                place.mkdir(mode=0o700, exist_ok=True)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    except OSError as error:
        raise storage_error(path, error) from error
    return path


PLACES: dict[str, Callable[[], Path]] = {
    "config": config_dir,
    "config-file": config_file,
    "data": data_dir,
    "models": models_dir,
    "history": history_file,
    "cache": cache_dir,
    "logs": log_dir,
}
