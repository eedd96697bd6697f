"""Inputs for `fuzz_readers.py`: valid ones changed in the ways that break readers, by format."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

Mutate = Callable[[random.Random, Sequence[bytes]], bytes]

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**40, "", "x", "0",
    "../../x", "/etc/passwd", "a/b", "\0", "\x1b]52;c;eA==\x07", "\x9b31m", "\u202e", "\ud800",
    "é👍", "n" * 300, "x" * 100_000, [], {}, [None], [[]], {"": {}}, {"a": 1}, [1, "x"],
    ["x"] * 50, "2026-01-01", "sha256:x", "f" * 64, "(a+)+$",
    "{% for i in range(10**9) %}{% endfor %}", "win", "F32", "llama",
)  # fmt: skip
TOKENS = (
    b"NaN", b"Infinity", b"1e999", b"-", b"9" * 5000, b'"\\ud800"', b"\\u0000", b"\xff",
    b"\xef\xbb\xbf", b"\0", b"[", b"]", b"{", b"}", b",", b":", b'"', b"'", b'"""', b"'''",
    b"\n", b"\r\n", b"#", b"=", b".", b"a.b.c.", b"[[a]]\n", b"[a.b]\n", b"inf",
    b"0x" + b"f" * 99, b"1979-05-27T07:32:00Z", b"-- ", b"data: ", b"\x1b[31m", b"\xc2\x9b",
    b"\\", b"null", b"true", b"1e400", b"{}", b"[]", b'""',
)  # fmt: skip
SPECIAL = (
    b"", b"\n", b"\0" * 1000, b"<!DOCTYPE html><html><body>Sign in</body></html>",
    b"[" * 100_000, b'{"a":' * 20_000, b"[" * 500 + b"]" * 500, b"9" * 100_000,
    b'"' + b"x" * 1_000_000 + b'"', b"[" + b"1," * 300_000 + b"1]",
    b"{" + b'"a":1,' * 100_000 + b'"a":1}', b"a = " + b"[" * 50_000, b"a." * 100_000 + b"a = 1",
    b"[" + b"a." * 100_000 + b"a]", b"a = " + b"{a = " * 5000, b"a = 0x" + b"f" * 50_000,
    b"a = 1\n" * 100_000, b"\xff\xfe" + "{}".encode("utf-16-le"),
    b"\x1f\x8b\x08\x00" + b"\0" * 100, b"PK\x03\x04" + b"\0" * 100,
)  # fmt: skip
ONE_SPECIAL_IN = 300
MOST_DEPTH = 250


def change_bytes(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One to six edits: a byte, a run, a token, a piece of another input, the end."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at, kind = chance.randrange(len(data) + 1), chance.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.choice((1, 2, 8, 64, 1024))]
        elif kind == 2:
            data[at:at] = chance.choice(TOKENS) * chance.choice((1, 1, 1, 2, 40))
        elif kind == 3:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + chance.randrange(200)]
        elif kind == 4:
            data[at:at] = data[at : at + chance.randrange(100)]
        elif chance.random() < 0.3:
            del data[at:]
    return bytes(data)


def change_json(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A document with one to three of its values replaced, left out, doubled or nested; or with its
    bytes changed."""
    if chance.randrange(ONE_SPECIAL_IN) == 0:
        return chance.choice(SPECIAL)
    if chance.random() < 0.35:
        return change_bytes(chance, seeds)
    seed = chance.choice(seeds)
    try:
        document = json.loads(seed)
    except ValueError:
        return change_bytes(chance, seeds)
    for _ in range(chance.randint(1, 3)):
        document = _with_change(chance, document)
    return json.dumps(document, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def change_lines(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Lines of changed documents between whole ones."""
    lines = [
        change_json(chance, seeds) if chance.random() < 0.6 else chance.choice(seeds)
        for _ in range(chance.randint(1, 3))
    ]
    end = b"" if chance.random() < 0.2 else b"\n"
    return b"\n".join(lines) + end


def change_toml(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Lines left out, doubled or mixed, values replaced, bytes changed."""
    if chance.randrange(ONE_SPECIAL_IN) == 0:
        return chance.choice(SPECIAL)
    if chance.random() < 0.4:
        return change_bytes(chance, seeds)
    lines = chance.choice(seeds).splitlines()
    for _ in range(chance.randint(1, 4)):
        at, kind = chance.randrange(len(lines) + 1), chance.randrange(4)
        if kind == 0:
            lines[at:at] = [chance.choice(chance.choice(seeds).splitlines())]
        elif kind == 1:
            del lines[at : at + 1]
        elif at < len(lines) and b"=" in lines[at]:
            name, _, _ = lines[at].partition(b"=")
            lines[at] = name + b"= " + _toml_value(chance)
        else:
            chance.shuffle(lines)
    return b"\n".join(lines) + b"\n"


def change_tar(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """An archive of the seed's members and odd ones, or with its bytes changed; a changed header
    often has its checksum mended."""
    if chance.randrange(ONE_SPECIAL_IN) == 0:
        return chance.choice(SPECIAL)
    data = bytearray(
        chance.choice(seeds)
        if chance.random() < 0.5
        else _odd_archive(chance, chance.choice(seeds))
    )
    if chance.random() < 0.6:
        for _ in range(chance.randint(1, 4)):
            block = 512 * chance.randrange(max(1, len(data) // 512))
            at = block + chance.randrange(512)
            if at < len(data):
                data[at] = chance.choice((0, 0x20, 0x30, 0x37, 0x80, 0xFF, chance.randrange(256)))
            if chance.random() < 0.8:
                _mend(data, block)
    if chance.random() < 0.1:
        del data[chance.randrange(len(data) + 1) :]
    return bytes(data)


def _with_change(chance: random.Random, document: Any) -> Any:
    places = list(_places(document))
    path = chance.choice(places)
    kind = chance.randrange(8)
    if not path:
        return copy.deepcopy(chance.choice(VALUES)) if kind == 0 else document
    holder = document
    for name in path[:-1]:
        holder = holder[name]
    last = path[-1]
    if kind == 0:
        del holder[last]
    elif kind == 1:
        for _ in range(chance.choice((1, 3, 50, MOST_DEPTH))):
            holder[last] = [holder[last]] if chance.random() < 0.5 else {"a": holder[last]}
    elif kind == 2 and isinstance(holder, list):
        # A value that earlier changes made deeper than Python can copy stays as it is.
        with contextlib.suppress(RecursionError):
            holder[last:last] = copy.deepcopy([holder[last]] * chance.choice((1, 2, 30)))
    elif kind == 2:
        holder[str(chance.choice(VALUES))[:500]] = holder.pop(last)
    elif kind == 3:
        other = document
        for name in chance.choice(places):
            other = other[name]
        holder[last] = json.loads(json.dumps(other))
    else:
        # A later change may go into it.
        holder[last] = copy.deepcopy(chance.choice(VALUES))
    return document


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)) and len(path) < 12:
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        for name, item in items[:40]:
            yield from _places(item, (*path, name))


def _toml_value(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return chance.choice(TOKENS)
    return json.dumps(chance.choice(VALUES)).encode()


def _odd_archive(chance: random.Random, seed: bytes) -> bytes:
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(seed)) as source,
        tarfile.open(fileobj=out, mode="w", format=chance.randrange(3)) as archive,
    ):
        members = source.getmembers()
        chance.shuffle(members) if chance.random() < 0.3 else None
        for member in members:
            content = source.extractfile(member)
            data = content.read() if content else b""
            if member.name.endswith(".json") and chance.random() < 0.5:
                data = change_json(chance, [data])
                member.size = len(data)
            for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 2))):
                _change_member(chance, member)
                with suppress(
                    ValueError
                ):  # what tarfile does not write, the changed bytes still may
                    archive.addfile(
                        member, io.BytesIO(data.ljust(min(max(member.size, 0), 1 << 20), b"\0"))
                    )
    return out.getvalue()


def _change_member(chance: random.Random, member: tarfile.TarInfo) -> None:
    kind = chance.randrange(14)
    if kind == 0:
        member.name = chance.choice(
            (
                "..",
                "../x",
                "/tmp/x",
                "a/../../x",
                "",
                ".",
                "a\0b",
                "n" * 300,
                member.name,
                "bundle.json",
                "x.gguf",
            )
        )
    elif kind == 1:
        member.type = bytes([chance.choice(b"0123456 7gxLKSVDM")])
        member.linkname = chance.choice((member.name, "..", "/etc/passwd", "x"))
    elif kind == 2:
        member.size = chance.choice((0, 1, member.size + 1, max(member.size - 1, 0), 1 << 19))
    elif kind == 3:
        header = chance.choice(
            (
                "size",
                "path",
                "linkpath",
                "GNU.sparse.map",
                "GNU.sparse.major",
                "GNU.sparse.realsize",
                "mtime",
                "uid",
            )
        )
        value = chance.choice(("0", "-1", "x", "9" * 30, "../x", "1e9", "1,2,3", "n" * 5000))
        member.pax_headers = {header: value}


def _mend(data: bytearray, block: int) -> None:
    """Write the checksum that a tar header at `block` should have."""
    header = data[block : block + 512]
    if len(header) == 512:
        header[148:156] = b" " * 8
        data[block + 148 : block + 156] = f"{sum(header):06o}\0 ".encode()
