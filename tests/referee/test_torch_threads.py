"""One thread for torch: while it is in force, in the threads that asked, and no longer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from referee.concurrency import single_torch_thread


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_it_ends_with_the_block_and_with_an_exception() -> None:
    with single_torch_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with pytest.raises(KeyError), single_torch_thread():
        raise KeyError
    assert torch.get_num_threads() == 3


def test_other_threads_keep_theirs_and_new_ones_get_theirs_back() -> None:
    first_is_in, second_is_out = threading.Event(), threading.Event()

    def first() -> int:
        with single_torch_thread():
            first_is_in.set()
            assert second_is_out.wait(30)
        return torch.get_num_threads()

    def second() -> int:
        assert first_is_in.wait(30)
        with single_torch_thread():
            assert torch.get_num_threads() == 1
        second_is_out.set()
        return torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(first), pool.submit(second)]
        assert torch.get_num_threads() == 3
        assert [one.result() for one in found] == [3, 3]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 3
