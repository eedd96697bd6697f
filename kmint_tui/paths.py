"""Where kmint keeps things.

Functions, not constants: the environment is read when asked, and nothing is created until something is to be written.
`KMINT_HOME` moves everything below one folder; `KMINT_MODELS_DIR` moves the weights alone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from kmint_tui.errors import storage_error

_APP = "kmint"


def _base(kind: str, default: Callable[[str], str]) -> Path:
    home = os.environ.get("KMINT_HOME")
    return Path(home).expanduser() / kind if home else Path(default(_APP))


def config_dir() -> Path:
    """Settings and the user's own `models.toml`."""
    return _base("config", platformdirs.user_config_dir)


def data_dir() -> Path:
    """The history and the models."""
    return _base("data", platformdirs.user_data_dir)


def cache_dir() -> Path:
    """Things that can be made again: compiled kernels, baselines, measurements."""
    return _base("cache", platformdirs.user_cache_dir)


def state_dir() -> Path:
    """Logs."""
    return _base("state", platformdirs.user_state_dir)


def config_file() -> Path:
    """The settings file."""
    return config_dir() / "config.toml"


def user_models_file() -> Path:
    """The user's additions to the model registry."""
    return config_dir() / "models.toml"


def models_dir() -> Path:
    """The model store."""
    override = os.environ.get("KMINT_MODELS_DIR")
    return Path(override).expanduser() if override else data_dir() / "models"


def history_file() -> Path:
    """The database of everything minted."""
    return data_dir() / "history.db"


def log_dir() -> Path:
    """Logs of the smith, the referee and internal errors."""
    return state_dir() / "logs"


def private_dir(path: Path) -> Path:
    """`path`, made with its missing parents, each readable by its owner only. Raises StorageError."""
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
