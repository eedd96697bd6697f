"""`kmint config`: what is wrong in the settings file is told with what to do about it, before it
can break a session.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[mint]\ntop_p = 0\n", "not above 0 and at most 1"),
        (b"[mint]\ntop_p = nan\n", "not finite"),
        (b"[mint]\ntemperature = -1\n", "outside 0 to 5"),
        (b'[mint]\ntarget = "zzz"\n', "unknown target 'zzz'"),
        (b'[mint]\ndrafts = "8"\n', "type int"),
        (b"\xff\xfe", "not UTF-8 text (byte 0)"),
        (b"[mint]\ndraft = 3\n", "mint.drafts"),
        (b'[keys]\n"mint.start" = "f6"\n', "tui.toml"),
    ],
)
def test_what_is_wrong_in_the_settings_is_exit_2(kmint_home: Path, text: bytes, words: str) -> None:
    (kmint_home / "config").mkdir(parents=True)
    (kmint_home / "config" / "config.toml").write_bytes(text)
    done = kmint("config", "validate")
    assert (done.code, done.out) == (2, "")
    assert words in done.err and "config.toml" in done.err
