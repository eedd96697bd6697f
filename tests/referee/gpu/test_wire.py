"""Frames between the judge and the worker."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.gpu import wire


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)


@given(st.dictionaries(st.text(), scalars), st.lists(st.binary(max_size=200), max_size=4))
def test_a_frame_comes_back_as_it_went(message: wire.Message, blobs: list[bytes]) -> None:
    # A file holds a frame of any size; a pipe with nobody at the other end may not.
    frame = os.memfd_create("frame")
    try:
        wire.send(frame, wire.frame(message, blobs))
        os.lseek(frame, 0, os.SEEK_SET)
        assert wire.receive(wire.blocking_reader(frame)) == (message, blobs)
    finally:
        os.close(frame)


def test_a_frame_larger_than_the_pipe_arrives_in_time(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    blob = os.urandom(1 << 20)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(
            wire.send, writing, wire.frame({"do": "anything"}, [blob]), lambda: 600.0
        )
        assert wire.receive(wire.timed_reader(reading, lambda: 600.0)) == (
            {"do": "anything"},
            [blob],
        )
        sent.result()


def test_a_frame_that_no_process_reads_runs_out_of_time(pipe: tuple[int, int]) -> None:
    _, writing = pipe
    # A write that blocks would never come back.
    with pytest.raises(wire.WireTimeout):
        wire.send(writing, wire.frame({"do": "anything"}, [bytes(8 << 20)]), lambda: None)


def test_only_the_clock_ends_a_wait(pipe: tuple[int, int]) -> None:
    # A busy machine may stop the reader's thread until its wait is over before it begins.
    reading, writing = pipe
    looks = 0

    def left() -> float | None:
        nonlocal looks
        looks += 1
        if looks == 3:
            wire.send(writing, wire.frame({"do": "anything"}))
        return 0.0

    assert wire.receive(wire.timed_reader(reading, left))[0] == {"do": "anything"}


def test_the_end_of_the_stream_is_an_error() -> None:
    reading, writing = os.pipe()
    os.write(writing, struct.pack("<Q", 100) + b"{")
    os.close(writing)
    with pytest.raises(wire.WireError, match="closed"):
        wire.receive(wire.blocking_reader(reading))
    os.close(reading)


def test_writing_to_a_closed_pipe_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(wire.WireError, match="cannot write"):
        wire.send(writing, wire.frame({"do": "anything"}))
    os.close(writing)


def test_a_missed_deadline_is_told_apart(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"\0\0")
    with pytest.raises(wire.WireTimeout):
        wire.receive(wire.timed_reader(reading, lambda: None))


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", wire.MOST_HEADER + 1),
        struct.pack("<Q", 4) + b"oops",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 29) + b'{"message": {}, "blobs": [-1]}'[:29],
        struct.pack("<Q", 30) + b'{"message": {}, "blobs": [-1]}',
    ],
)
def test_a_mangled_stream_is_an_error_and_no_allocation(pipe: tuple[int, int], data: bytes) -> None:
    reading, writing = pipe
    os.write(writing, data)
    with pytest.raises(wire.WireError):
        wire.receive(wire.blocking_reader(reading))
