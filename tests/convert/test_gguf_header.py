"""The header reader agrees with llama.cpp's tables, and refuses broken files with a GgufError."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given, settings
from hypothesis import strategies as st

from convert.gguf_header import GgufError, Header, block_sizes, parse_header, read_header
from tests import tiny_models


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return tiny_models.llama(path, quant="Q8_0")


def test_block_sizes_are_those_of_gguf() -> None:
    assert block_sizes() == {
        int(kind): (kind.name, block, nbytes) for kind, (block, nbytes) in GGML_QUANT_SIZES.items()
    }


def test_reading_a_header_loads_no_numpy(model: Path) -> None:
    script = f"""
import sys, pathlib
from convert.gguf_header import read_header
assert read_header(pathlib.Path({str(model)!r})).tensors
assert not {{"numpy", "gguf"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_agrees_with_the_reader_of_gguf(model: Path) -> None:
    header, theirs = read_header(model), GGUFReader(model)
    assert [(t.name, t.shape, t.nbytes, header.data_offset + t.offset) for t in header.tensors] == [
        (t.name, tuple(int(n) for n in t.shape), int(t.n_bytes), int(t.data_offset))
        for t in theirs.tensors
    ]
    assert header.text("general.architecture") == "llama"
    assert header.count("tokenizer.ggml.tokens") == len(theirs.fields["tokenizer.ggml.tokens"].data)


def test_every_truncation_is_refused(model: Path) -> None:
    content = model.read_bytes()
    header = parse_header(content)
    for length in [
        *range(0, header.data_offset, 97),
        header.data_offset,
        len(content) // 2,
        len(content) - 1,
    ]:
        with pytest.raises(GgufError):
            parse_header(content[:length]) if length >= 4 else read_header(
                _written(model.parent / "cut.gguf", content[:length])
            )


@pytest.mark.parametrize(
    ("offset", "form", "value", "reason"),
    [
        (0, "<4s", b"GGML", "start with"),
        (4, "<I", 1, "version"),
        (8, "<Q", 1 << 60, "tensors"),
        (16, "<Q", 1 << 60, "metadata entries"),
        (24, "<Q", 1 << 62, "string of"),
    ],
)
def test_hostile_counts_are_refused(
    model: Path, offset: int, form: str, value: object, reason: str
) -> None:
    content = bytearray(model.read_bytes())
    struct.pack_into(form, content, offset, value)
    with pytest.raises(GgufError, match=reason):
        parse_header(bytes(content))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_mutated_heads_never_raise_anything_else(model: Path, data: st.DataObject) -> None:
    content = bytearray(model.read_bytes())
    length = parse_header(bytes(content)).data_offset
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, length - 9))
        replacement = data.draw(
            st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8), st.just(bytes(8)))
        )
        content[at : at + len(replacement)] = replacement
    try:
        header = parse_header(bytes(content))
    except GgufError:
        return
    assert isinstance(header, Header)
    assert all(
        header.data_offset + tensor.offset + tensor.nbytes <= len(content)
        for tensor in header.tensors
    )


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
