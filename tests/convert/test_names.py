"""The accepted names of servers, archives and indexes: one table for all of them."""

from __future__ import annotations

import pytest

from convert.names import BadName, accepted_name, is_commit, is_sha256

BAD = [
    "", ".", "..", ".bashrc", "../x", "/etc/x", "a/../b", "a//b", "a/", "a/.hidden", "a\\..\\b", "a\0b", "a\nb",
    "a\x1b]52;c;x\x07", "a\u202eb", "a\ud800", "x" * 256, "\u00e9" * 128, "a/" * 20 + "b", None, 3, ["a"],
]  # fmt: skip
FILES = [
    "model.safetensors",
    "Tiny Mod\u00e8le.gguf",
    "model-00001-of-00002.safetensors",
    "-",
    "x" * 255,
]


@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:20])
def test_a_name_that_leaves_its_folder_is_refused(name: object) -> None:
    """As a file's name and as a path; the message holds no control character."""
    for folders in (False, True):
        with pytest.raises(BadName) as refused:
            accepted_name(name, folders=folders)
        assert str(refused.value).isascii() and str(refused.value).isprintable()


@pytest.mark.parametrize("name", FILES, ids=lambda name: ascii(name)[:20])
def test_a_plain_name_is_accepted(name: str) -> None:
    """Folders are allowed only on request."""
    assert accepted_name(name) == accepted_name(name, folders=True) == name
    assert accepted_name(f"gguf/{name}", folders=True) == f"gguf/{name}"
    with pytest.raises(BadName):
        accepted_name(f"gguf/{name}")


@pytest.mark.parametrize(
    "text",
    [
        "main",
        "c" * 39,
        "c" * 41,
        "C" * 40,
        "c" * 40 + "\n",
        "\u0663" * 40,
        "../../..",
        "",
        None,
        7,
    ],
)
def test_only_40_hexadecimal_digits_are_a_commit(text: object) -> None:
    """None of these is a sha256 either."""
    assert not is_commit(text) and not is_sha256(text)
    assert is_commit("0123456789abcdef" * 2 + "01234567") and is_sha256("0" * 64)
