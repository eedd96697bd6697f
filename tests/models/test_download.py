"""Fetching with the real huggingface_hub client from a misbehaving server on loopback."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui.errors import ModelError, OfflineRefusal, StorageError, TimedOut
from kmint_tui.models import download
from kmint_tui.models.check import check, facts
from kmint_tui.models.hub import find
from kmint_tui.models.registry import ModelEntry
from kmint_tui.models.remote import Remote
from tests import tiny_models
from tests.models.hub_server import COMMIT, Hub
from tests.tiny_models import Shape

REPO = "someone/smith-GGUF"
DATA = random.Random(0).randbytes(3_000_000)
ENTRY = ModelEntry(
    id="m",
    title="M",
    kind="hub",
    rank=1,
    licence="MIT",
    context=2048,
    dialect="card",
    temperature=0.7,
    top_p=0.97,
    max_tokens=100,
    repo=REPO,
    quants=("Q5_K_M", "Q8_0"),
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {"smith-Q8_0.gguf": DATA, "smith-Q4_K_M.gguf": b"small", "README.md": b"hello"}
    with Hub(REPO, files) as server:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(download, "TRIES_WITHOUT_PROGRESS", 3)
        yield server


def remote(hub: Hub) -> Remote:
    found = find(ENTRY)
    return replace(found, url=f"{hub.endpoint}/{REPO}/resolve/{COMMIT}/{found.name}")


def test_the_first_quant_that_is_there_is_found(hub: Hub) -> None:
    found = remote(hub)
    assert (found.name, found.nbytes, found.revision, len(found.sha256 or "")) == (
        "smith-Q8_0.gguf",
        len(DATA),
        COMMIT,
        64,
    )
    assert find(ENTRY, quant="q4_k_m").name == "smith-Q4_K_M.gguf"
    with pytest.raises(ModelError, match="smith-Q8_0.gguf"):
        find(ENTRY, quant="Q2_K")


def test_an_unknown_repository_is_named(hub: Hub) -> None:
    with pytest.raises(ModelError, match="404"):
        find(replace(ENTRY, repo="nobody/nothing"))


def test_a_pinned_digest_must_be_the_published_one(hub: Hub) -> None:
    with pytest.raises(ModelError, match="models.toml"):
        find(replace(ENTRY, sha256={"smith-Q8_0.gguf": "0" * 64}))


def test_fetch_shows_progress_and_leaves_one_file(hub: Hub, tmp_path: Path) -> None:
    seen: list[int] = []
    path = download.fetch(remote(hub), tmp_path, progress=lambda done, total: seen.append(done))
    assert path.read_bytes() == DATA
    assert seen == sorted(seen) and seen[-1] == len(DATA)
    names = ["smith-Q8_0.gguf", "smith-Q8_0.gguf.origin.json", "smith-Q8_0.gguf.sha256"]
    assert sorted(item.name for item in tmp_path.glob("[!.]*")) == names
    served = hub.served
    assert download.fetch(remote(hub), tmp_path) == path
    assert hub.served == served


@pytest.mark.parametrize(
    "fault",
    [
        ("drop", 1_000_000),
        ("ignore-range", 0),
        ("changed", 0),
        ("status", 500),
        ("status", 429),
        ("status", 416),
    ],
    ids=lambda fault: f"{fault[0]}-{fault[1]}",
)
def test_a_passing_fault_is_survived(hub: Hub, tmp_path: Path, fault: tuple[str, int]) -> None:
    hub.faults.extend([("drop", 700_000), fault])
    assert download.fetch(remote(hub), tmp_path).read_bytes() == DATA


def test_a_broken_transfer_continues_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    hub.faults.append(("drop", 1_234_567))
    assert download.fetch(remote(hub), tmp_path).read_bytes() == DATA
    assert hub.requests[1][1] == "bytes=1234567-"


@pytest.mark.parametrize(
    ("status", "said"), [(401, "licence"), (403, "licence"), (404, "models.toml"), (418, "")]
)
def test_a_refusal_is_explained_and_keeps_nothing_under_the_name(
    hub: Hub, tmp_path: Path, status: int, said: str
) -> None:
    hub.faults.append(("status", status))
    with pytest.raises(ModelError, match=str(status)) as caught:
        download.fetch(remote(hub), tmp_path)
    assert said in caught.value.fix
    assert not (tmp_path / "smith-Q8_0.gguf").exists()


@pytest.mark.parametrize("fault", [("drop", 0), ("status", 503)], ids=["drop", "503"])
def test_a_lasting_fault_ends_with_what_arrived_kept(
    hub: Hub, tmp_path: Path, fault: tuple[str, int]
) -> None:
    hub.faults.extend([("drop", 500_000), *[fault] * 3])
    with pytest.raises(TimedOut, match="3 times"):
        download.fetch(remote(hub), tmp_path)
    assert (tmp_path / "smith-Q8_0.gguf.part").stat().st_size == 500_000
    assert download.fetch(remote(hub), tmp_path).read_bytes() == DATA


def test_a_stalled_transfer_is_noticed(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer stalls. On a busy machine others may seem to stall, so only the order counts."""
    monkeypatch.setattr(download, "TRIES_WITHOUT_PROGRESS", 100)
    hub.silent_after = 1_000_001
    assert download.fetch(remote(hub), tmp_path, stall_seconds=0.3).read_bytes() == DATA
    starts = [int((wanted or "bytes=0-")[6:-1]) for _, wanted in hub.requests]
    assert starts == sorted(starts) and len(starts) >= 3
    assert starts[-1] >= len(DATA) - 1_000_001, (
        "the end came with an answer that the server did not finish"
    )


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
        find(ENTRY, offline="--offline")
    found = remote(hub)
    with pytest.raises(OfflineRefusal, match="--offline"):
        download.fetch(found, tmp_path, offline="--offline")
    assert hub.requests == []


def test_the_head_is_read_and_not_the_rest(hub: Hub, tmp_path: Path) -> None:
    """A file of 40 MB with a head of 4 kB: the server sends a small part, and nothing stays."""
    shape = Shape(layers=2, hidden=1024, feed_forward=4096, vocabulary=600)
    path = tiny_models.llama(tmp_path / "m.gguf", shape)
    hub.files["smith-Q8_0.gguf"] = path.read_bytes()
    found = remote(hub)
    header = download.head(found)
    assert facts(Path(found.name), header).parameters == check(path).parameters
    assert header.file_bytes == found.nbytes > 20_000_000
    assert hub.served < found.nbytes
    for content in (b"GGUF", b"no model" * 1000, path.read_bytes()[:100_000]):
        hub.files["smith-Q8_0.gguf"] = content
        with pytest.raises(ModelError, match="not a sound GGUF"):
            download.head(remote(hub))
    for status in (403, 429, 500):
        hub.faults.append(("status", status))
        with pytest.raises(ModelError, match=str(status)):
            download.head(found)
    with pytest.raises(OfflineRefusal):
        download.head(found, offline="--offline")


@pytest.mark.parametrize("ignores_if_range", [False, True])
@pytest.mark.parametrize("plain", [False, True], ids=["sha256", "no sha256"])
def test_another_version_is_never_appended_to_the_first(
    hub: Hub, tmp_path: Path, ignores_if_range: bool, plain: bool
) -> None:
    """The file changes in the middle of a pull to one of equal length; only the etag shows it.

    The same holds where no sha256 is published.
    """
    hub.ignores_if_range, hub.plain = ignores_if_range, plain
    other = random.Random(5).randbytes(len(DATA))
    hub.faults.extend([("drop", 700_000), ("drop", 0)])
    found = replace(remote(hub), sha256=None) if plain else remote(hub)
    assert (found.sha256 is None) == plain
    with pytest.raises(TimedOut):
        hub.faults.extend([("drop", 0)] * 3)
        download.fetch(found, tmp_path)
    hub.faults.clear()
    hub.files[found.name] = other
    if plain:
        assert download.fetch(found, tmp_path).read_bytes() == other
    else:
        with pytest.raises(ModelError, match="damaged"):
            download.fetch(found, tmp_path)
        assert not list(tmp_path.glob("smith*"))


def test_a_file_shorter_than_announced_ends_with_a_clear_line(hub: Hub, tmp_path: Path) -> None:
    hub.announced["smith-Q8_0.gguf"] = len(DATA) + 5
    with pytest.raises(TimedOut, match="differs from the announced one"):
        download.fetch(remote(hub), tmp_path)
    assert not list(tmp_path.glob("smith*"))


def test_a_file_of_the_right_length_that_is_another_is_told(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "smith-Q8_0.gguf").write_bytes(bytes(len(DATA)))
    with pytest.raises(ModelError, match="not the published file"):
        download.fetch(remote(hub), tmp_path)


@pytest.mark.parametrize(
    ("status", "said"), [(401, "401"), (403, "403"), (404, "404"), (500, "500")]
)
def test_a_refused_question_about_the_repository_is_explained(
    hub: Hub, status: int, said: str
) -> None:
    hub.info_fault = status
    with pytest.raises(ModelError, match=said) as caught:
        find(ENTRY)
    assert caught.value.fix


def test_a_limited_rate_is_kept(hub: Hub, tmp_path: Path) -> None:
    began = time.monotonic()
    download.fetch(remote(hub), tmp_path, limit_rate=6e6)
    assert time.monotonic() - began > 0.9 * len(DATA) / 6e6


def test_two_processes_share_one_transfer(hub: Hub, tmp_path: Path) -> None:
    found, paths = remote(hub), []
    threads = [
        threading.Thread(target=lambda: paths.append(download.fetch(found, tmp_path)))
        for _ in range(2)
    ]
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
from kmint_tui.models.remote import Remote
remote = Remote(
    repo="someone/smith-GGUF", revision="c" * 40, name="smith-Q8_0.gguf", nbytes=int(sys.argv[2]),
    sha256=sys.argv[3], licence=None, url=sys.argv[1],
)
download.fetch(remote, Path(sys.argv[4]), limit_rate=float(sys.argv[5]), progress=lambda done, total: print(done, flush=True))
"""


def test_a_killed_pull_goes_on_later(hub: Hub, tmp_path: Path) -> None:
    """Killed 20 times, each after a random number of bytes; then finished, with the right digest.

    The server gives each of them less than the 20th part of the file, so that none can finish
    before it is killed.
    """
    hub.files["smith-Q8_0.gguf"] = data = random.Random(1).randbytes(48 << 20)
    hub.silent_after = 2 << 20
    found = remote(hub)
    chooser, part, sizes = random.Random(2), tmp_path / "smith-Q8_0.gguf.part", [0]
    arguments = [found.url, str(found.nbytes), found.sha256 or "", str(tmp_path)]
    for _ in range(20):
        target = sizes[-1] + chooser.randint(1, hub.silent_after)
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, *arguments, "2e8"], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            arrived = next((done for done in map(int, child.stdout) if done >= target), None)
            child.kill()
        assert arrived is not None and child.returncode == -signal.SIGKILL, "it ended by itself"
        sizes.append(part.stat().st_size)
        assert sizes[-1] >= arrived
    assert sizes == sorted(sizes)
    hub.silent_after = None
    assert download.fetch(found, tmp_path).read_bytes() == data
