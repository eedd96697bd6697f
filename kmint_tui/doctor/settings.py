"""The settings file, proxies, and whether the network may be used. Nothing here uses it."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from kmint_tui import config, paths
from kmint_tui.core.offline import offline_reason
from kmint_tui.doctor.finding import Finding
from kmint_tui.models import registry

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HF_ENDPOINT")


def settings() -> Finding:
    """Finding on the settings and the user's own models.toml. Raises ConfigError."""
    config.load(paths.config_file())
    registry.load(paths.user_models_file())
    here = [str(path) for path in (paths.config_file(), paths.user_models_file()) if path.exists()]
    return Finding("settings", "ok", ", ".join(here) or "none; the built-in settings apply")


def proxies() -> Finding:
    """The proxies and the hub that pulls would use, without user names, passwords or paths."""
    names = [form for name in PROXIES for form in (name, name.lower()) if os.environ.get(form)]
    shown = [
        (name, os.environ[name] if name.upper() == "NO_PROXY" else _address(os.environ[name]))
        for name in names
    ]
    text = ", ".join(f"{name}={value or 'not an address'}" for name, value in shown)
    if any(not value for _, value in shown):
        return Finding("proxies", "warn", text, "write it as http://host:port")
    return Finding("proxies", "ok", text or "none set")


def _address(value: str) -> str:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else ""


def offline(*, flag: bool) -> Finding:
    """The reason to stay offline, if any. Raises ConfigError."""
    reason = offline_reason(flag=flag)
    used = "online allowed; used only to fetch models, and for a smith named by its address"
    return Finding("offline", "ok", f"offline: {reason}" if reason else used)
