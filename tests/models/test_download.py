"""Fetching through the real huggingface_hub client from a server on loopback that can misbehave in every way we know."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui.errors import ModelError, OfflineRefusal, StorageError, TimedOut
from kmint_tui.models import download
from kmint_tui.models.registry import ModelEntry
from tests.models.hub_server import COMMIT, Hub

REPO = "someone/smith-GGUF"
DATA = random.Random(0).randbytes(3_000_000)
ENTRY = ModelEntry("m", "M", "hub", 1, "MIT", 2048, "card", 0.7, 0.97, 100, repo=REPO, quants=("Q5_K_M", "Q8_0"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {"smith-Q8_0.gguf": DATA, "smith-Q4_K_M.gguf": b"small", "README.md": b"hello"}
    with Hub(REPO, files) as server:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(download, "TRIES_WITHOUT_PROGRESS", 3)
        yield server


def remote(hub: Hub) -> download.Remote:
    found = download.find(ENTRY)
    return replace(found, url=f"{hub.endpoint}/{REPO}/resolve/{COMMIT}/{found.name}")


def test_the_first_quant_that_is_there_is_found(hub: Hub) -> None:
    found = remote(hub)
    assert (found.name, found.nbytes, found.revision, len(found.sha256 or "")) == ("smith-Q8_0.gguf", len(DATA), COMMIT, 64)
    assert download.find(ENTRY, quant="q4_k_m").name == "smith-Q4_K_M.gguf"
    with pytest.raises(ModelError, match="smith-Q8_0.gguf"):
        download.find(ENTRY, quant="Q2_K")


def test_an_unknown_repository_is_named(hub: Hub) -> None:
    with pytest.raises(ModelError, match="404"):
        download.find(replace(ENTRY, repo="nobody/nothing"))


def test_a_pinned_digest_must_be_the_published_one(hub: Hub) -> None:
    with pytest.raises(ModelError, match="models.toml"):
        download.find(replace(ENTRY, sha256={"smith-Q8_0.gguf": "0" * 64}))


def test_fetch_shows_progress_and_leaves_one_file(hub: Hub, tmp_path: Path) -> None:
    seen: list[int] = []
    path = download.fetch(remote(hub), tmp_path, progress=lambda done, total: seen.append(done))
    assert path.read_bytes() == DATA
    assert seen == sorted(seen) and seen[-1] == len(DATA)
    assert [item.name for item in tmp_path.iterdir() if not item.name.startswith(".")] == ["smith-Q8_0.gguf"]
    served = hub.served
    assert download.fetch(remote(hub), tmp_path) == path
    assert hub.served == served


@pytest.mark.parametrize(
    "fault",
    [("drop", 1_000_000), ("ignore-range", 0), ("changed", 0), ("status", 500), ("status", 429), ("status", 416)],
    ids=lambda fault: f"{fault[0]}-{fault[1]}",
)
def test_a_passing_fault_is_survived(hub: Hub, tmp_path: Path, fault: tuple[str, int]) -> None:
    hub.faults.extend([("drop", 700_000), fault])
    assert download.fetch(remote(hub), tmp_path).read_bytes() == DATA


def test_a_broken_transfer_continues_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.faults.append(("drop", 1_234_567))
    assert download.fetch(remote(hub), tmp_path).read_bytes() == DATA
    assert hub.requests[1][1] == "bytes=1234567-"


@pytest.mark.parametrize(("status", "said"), [(401, "licence"), (403, "licence"), (404, "models.toml"), (418, "")])
def test_a_refusal_is_explained_and_keeps_nothing_under_the_name(hub: Hub, tmp_path: Path, status: int, said: str) -> None:
    hub.faults.append(("status", status))
    with pytest.raises(ModelError, match=str(status)) as caught:
        download.fetch(remote(hub), tmp_path)
    assert said in caught.value.fix
    assert not (tmp_path / "smith-Q8_0.gguf").exists()


@pytest.mark.parametrize("fault", [("drop", 0), ("status", 503)], ids=["drop", "503"])
def test_a_lasting_fault_ends_with_what_arrived_kept(hub: Hub, tmp_path: Path, fault: tuple[str, int]) -> None:
    hub.faults.extend([("drop", 500_000), *[fault] * 3])
    with pytest.raises(TimedOut, match="3 times"):
        download.fetch(remote(hub), tmp_path)
    assert (tmp_path / "smith-Q8_0.gguf.part").stat().st_size == 500_000
    assert download.fetch(remote(hub), tmp_path).read_bytes() == DATA


def test_a_stalled_transfer_is_noticed(hub: Hub, tmp_path: Path) -> None:
    hub.faults.extend([("stall", 100)])
    assert download.fetch(remote(hub), tmp_path, stall_seconds=0.3).read_bytes() == DATA
    assert hub.requests[1][1] == "bytes=100-"


def test_a_long_wait_is_left_to_the_person(hub: Hub, tmp_path: Path) -> None:
    hub.faults.append(("wait", 3600))
    with pytest.raises(TimedOut, match="3600 s"):
        download.fetch(remote(hub), tmp_path)


def test_too_many_bytes_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.faults.append(("more", 5))
    with pytest.raises(ModelError, match="more than"):
        download.fetch(remote(hub), tmp_path)
    assert not list(tmp_path.glob("smith*"))


def test_a_damaged_file_never_gets_its_name(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="damaged"):
        download.fetch(replace(remote(hub), sha256="0" * 64), tmp_path)
    assert not list(tmp_path.glob("smith*"))


def test_no_room_is_said_before_the_first_byte(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="GB are needed"):
        download.fetch(replace(remote(hub), nbytes=10**18), tmp_path)
    assert hub.requests == []


def test_offline_opens_nothing(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(OfflineRefusal, match="--offline"):
        download.find(ENTRY, offline="--offline")
    found = remote(hub)
    with pytest.raises(OfflineRefusal, match="--offline"):
        download.fetch(found, tmp_path, offline="--offline")
    assert hub.requests == []


def test_two_processes_share_one_transfer(hub: Hub, tmp_path: Path) -> None:
    found, paths = remote(hub), []
    threads = [threading.Thread(target=lambda: paths.append(download.fetch(found, tmp_path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == DATA for path in paths] == [True, True]
    assert hub.served == len(DATA)


CHILD = """
import sys
from pathlib import Path
from kmint_tui.models import download
remote = download.Remote("someone/smith-GGUF", "c" * 40, "smith-Q8_0.gguf", int(sys.argv[2]), sys.argv[3], None, sys.argv[1])
download.fetch(remote, Path(sys.argv[4]), limit_rate=float(sys.argv[5]), progress=lambda done, total: print(done, flush=True))
"""


def test_a_killed_pull_goes_on_later(hub: Hub, tmp_path: Path) -> None:
    """Killed after a random number of progress reports, 20 times over; then finished, with the right digest."""
    hub.files["smith-Q8_0.gguf"] = data = random.Random(1).randbytes(48 << 20)
    found = remote(hub)
    chooser, sizes = random.Random(2), []
    arguments = [found.url, str(found.nbytes), found.sha256 or "", str(tmp_path)]
    for _ in range(20):
        child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments, "2e8"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(chooser.randint(1, 2)):
            child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        part = tmp_path / "smith-Q8_0.gguf.part"
        sizes.append(part.stat().st_size if part.exists() else len(data))
    assert sizes == sorted(sizes) and sizes[0] > 0
    assert download.fetch(found, tmp_path).read_bytes() == data
