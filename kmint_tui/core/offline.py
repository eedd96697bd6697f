"""Whether kmint may use the network: an option, environment variables, the settings."""

from __future__ import annotations

from kmint_tui import config, paths

OFFLINE_VARIABLES = ("KMINT_OFFLINE", "HF_HUB_OFFLINE")


def offline_variable() -> str | None:
    """The environment variable that keeps kmint offline, or None."""
    return next(filter(config.switched_on, OFFLINE_VARIABLES), None)


def offline_reason(*, flag: bool = False) -> str | None:
    """The option, variable or setting that keeps kmint offline; None where the network is allowed.

    `flag` is the option `--offline`. Raises ConfigError for settings that cannot be read.
    """
    if flag:
        return "--offline"
    return offline_variable() or (
        "network.offline in the settings"
        if config.load(paths.config_file()).config.network_offline
        else None
    )
