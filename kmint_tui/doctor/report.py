"""One file for a bug report, without the names of persons and machines.

Removed are the home folder, kmint's own folders, the user's and the host's name, and host names and
credentials in addresses. The values of environment variables that look like secrets are removed as
well. Read the file before you send it.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from convert import files
from kmint_tui import __version__, paths
from kmint_tui.doctor.finding import Finding
from kmint_tui.errors import storage_error

SCHEMA = "kmint.doctor/1"
SHORTEST_SECRET = 6
"""Least number of characters of a value that is removed as a secret."""

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s,;'\"]+", re.IGNORECASE)
_TOKEN = re.compile(r"\b(?:hf_|ghp_|gho_|github_pat_|sk-|xox[abp]-)[A-Za-z0-9_-]{6,}")
_NO_PROXY = re.compile(r"(no_proxy=)[^;]*", re.IGNORECASE)


def write_report(path: Path, findings: Sequence[Finding]) -> None:
    """Write the redacted findings to `path` as JSON, whole or not at all. Raises StorageError."""
    clean = [{key: redact(str(value)) for key, value in asdict(one).items()} for one in findings]
    body = {"schema": SCHEMA, "kmint_version": __version__, "redacted": True, "findings": clean}
    try:
        files.write_text(path, json.dumps(body, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise storage_error(path, error) from error


def redact(text: str) -> str:
    """`text` without paths of the user, names of user and host, addresses and secrets."""
    for secret in _secrets():
        text = text.replace(secret, "<secret>")
    text = _TOKEN.sub("<secret>", text)
    text = _NO_PROXY.sub(r"\1<hosts>", text)
    text = _ADDRESS.sub(r"\1<host>", text)
    for place, name in _places():
        text = re.sub(rf"{re.escape(place)}(?=[/\s,;:'\")]|$)", name, text)
    for word, name in (
        (_user(), "<user>"),
        (platform.node(), "<host>"),
        (platform.node().partition(".")[0], "<host>"),
    ):
        if word:
            text = re.sub(rf"(?<![\w<]){re.escape(word)}(?!\w)", name, text)
    return text


def _secrets() -> list[str]:
    found = {
        value
        for name, value in os.environ.items()
        if _SECRET_NAME.search(name) and len(value) >= SHORTEST_SECRET
    }
    return sorted(found, key=len, reverse=True)


def _places() -> list[tuple[str, str]]:
    named = {
        "<config>": paths.config_dir(),
        "<data>": paths.data_dir(),
        "<models>": paths.models_dir(),
        "<cache>": paths.cache_dir(),
    }
    named |= {"<state>": paths.state_dir(), "~": paths.expanded("~"), "<here>": Path.cwd()}
    if home := os.environ.get("KMINT_HOME"):
        named["<kmint-home>"] = paths.expanded(home)
    found = {
        (str(form), name)
        for name, path in named.items()
        for form in (path, path.absolute(), path.resolve())
    }
    # The longest first, so that a folder within another keeps its own name. The root folder reveals
    # no name.
    return sorted(
        (item for item in found if item[0] not in ("/", ".")),
        key=lambda item: len(item[0]),
        reverse=True,
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
