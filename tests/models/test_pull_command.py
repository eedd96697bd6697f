"""`kmint models pull` as a process: its messages, awkward stores, two at once, and a proxy."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import Done, kmint
from tests.models.hub_server import Hub
from tests.models.places import read_only, tmpfs, with_mount
from tests.tiny_models import CHATML, Shape, llama

REPO = "someone/tiny-GGUF"
REGISTRY = f"""\
[[model]]
id = "tiny"
title = "Tiny"
kind = "hub"
rank = 50
licence = "MIT"
context = 2048
dialect = "card"
temperature = 0.7
top_p = 0.97
max_tokens = 64
repo = "{REPO}"
quants = ["F16", "Q8_0"]
"""
FILL = """
import sys
from pathlib import Path
from kmint_tui.errors import StorageError
from kmint_tui.models import download
from kmint_tui.models.remote import Remote
url, size, digest, folder = sys.argv[1:]
remote = Remote(
    repo="someone/tiny-GGUF", revision="c" * 40, name="tiny-F16.gguf", nbytes=int(size), sha256=digest,
    licence=None, url=url,
)
filler = Path(folder, "filler").open("wb", buffering=0)
def fill(done, total):
    try:
        while filler.write(bytes(1 << 20)): pass
    except OSError: pass
try:
    download.fetch(remote, Path(folder), progress=fill)
except StorageError as error:
    print(error.message)
arrived = Path(folder, "tiny-F16.gguf.part").stat().st_size
assert not Path(folder, "tiny-F16.gguf").exists() and 0 < arrived < int(size), arrived
Path(folder, "filler").unlink()
filler.close()
print(download.fetch(remote, Path(folder)).stat().st_size)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(
        tmp_path_factory.mktemp("model") / "tiny-F16.gguf",
        Shape(layers=8, hidden=256, feed_forward=512),
    )


@pytest.fixture
def hub(model: Path, kmint_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    (kmint_home / "config").mkdir(parents=True)
    (kmint_home / "config" / "models.toml").write_text(REGISTRY, encoding="utf-8")
    for name in (
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "NO_PROXY",
        "no_proxy",
        "HF_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)
    with Hub(REPO, {"tiny-F16.gguf": model.read_bytes()}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_what_will_happen_is_said_before_it_happens(
    hub: Hub, kmint_home: Path, model: Path
) -> None:
    plan = kmint("models", "pull", "tiny", "--dry-run", "--json")
    assert plan.code == 0, plan.err
    size, fit, *_ = plan.err.splitlines()
    assert size == f"tiny-F16.gguf of {REPO}, {model.stat().st_size / 1e9:.2f} GB, licence MIT"
    assert (
        fit.startswith(("fits: ", "fits if ", "does not fit: ", "unknown "))
        and "the referee" in fit
    )
    assert plan.document["memory"]["need"]["weights"] == model.stat().st_size
    assert plan.document["path"] is None
    assert not (kmint_home / "data").exists()

    done = kmint("models", "pull", "tiny")
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == model.read_bytes()
    assert "MB/s" in done.err and "s left" in done.err
    assert "sha256 as published" in done.err
    assert "unchanged since it came in" in kmint("models", "verify", "tiny").out
    listing = kmint("models", "ls", "--json").document
    (verdict,) = (
        entry["memory"]["verdict"] for entry in listing["models"] if entry["id"] == "tiny"
    )
    # On a machine that is short of memory the model stays unused, and the embedded smith is used.
    assert listing["default"] == {"fits": "tiny", "unknown": "tiny"}.get(verdict, "embedded"), (
        listing["reason"]
    )
    assert kmint("models", "url", "tiny", "--json").document["url"].startswith(hub.endpoint)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (("status", 401), 4, "hf auth login"),
        (("status", 403), 4, "hf auth login"),
        (("status", 404), 4, "404"),
        (("wait", 3600), 5, "3600 s"),
        (("more", 5), 4, "more than"),
    ],
    ids=lambda value: str(value),
)
def test_every_fault_has_its_line_and_exit_code(
    hub: Hub, kmint_home: Path, fault: tuple[str, int], code: int, said: str
) -> None:
    hub.faults.extend([("", 0), fault])
    done = kmint("models", "pull", "tiny")
    assert done.code == code, done.err
    assert said in done.err and "error:" in done.err
    assert not list((kmint_home / "data" / "models").rglob("*.gguf"))


def test_an_unusable_file_is_refused_before_it_is_fetched(
    hub: Hub, kmint_home: Path, tmp_path: Path
) -> None:
    thinks = CHATML.replace("<think>\n\n</think>{{ '\\n\\n' }}", "<think>\n")
    bad = {
        "thinking": llama(tmp_path / "a.gguf", template=thinks).read_bytes(),
        "architecture": llama(tmp_path / "b.gguf").read_bytes().replace(b"llama", b"lIama"),
        "not a sound GGUF": b"GGUF" + bytes(100),
    }
    for said, content in bad.items():
        hub.files["tiny-F16.gguf"] = content
        hub.requests.clear()
        done = kmint("models", "pull", "tiny")
        assert (done.code, said in done.err) == (4, True), done.err
        assert len(hub.requests) == 1, "more than the head was asked for"
        assert not (kmint_home / "data").exists()


def test_two_processes_pull_one_file(hub: Hub, model: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "kmint_tui",
        "models",
        "pull",
        "tiny",
        "--json",
        "--limit-rate",
        "8M",
    ]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    paths = {json.loads(out)["path"] for out, _ in answers}
    assert [Path(path).read_bytes() == model.read_bytes() for path in paths] == [True]
    # Both read the head, one fetches.
    assert len(hub.requests) == 3
    assert not list(Path(paths.pop()).parent.glob("*.part*"))


def test_what_is_being_pulled_is_not_removed(hub: Hub, kmint_home: Path, model: Path) -> None:
    """The server stalls in the middle of the pull, until the test releases it."""
    hub.silent_after = model.stat().st_size // 2
    part = kmint_home / "data" / "models" / "tiny" / "tiny-F16.gguf.part"
    command = [sys.executable, "-m", "kmint_tui", "models", "pull", "tiny"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as pull:
        assert pull.stderr is not None
        arriving = next((line for line in pull.stderr if "MB/s" in line), "it ended by itself")
        try:
            assert "MB/s" in arriving and part.exists()
            refused = kmint("models", "rm", "tiny", "--yes")
            assert (refused.code, "is being fetched by another process" in refused.err) == (
                6,
                True,
            ), refused.err
            assert part.exists()
        finally:
            pull.terminate()
            pull.communicate()
    removed = kmint("models", "rm", "tiny", "--yes")
    assert removed.code == 0 and str(part) in removed.out, removed.err
    assert not list(part.parent.iterdir())


def test_a_full_file_system_is_refused_before_the_first_byte(hub: Hub, tmp_path: Path) -> None:
    done = run_in(
        with_mount(tmpfs(tmp_path, 16), KMINT + ["models", "pull", "tiny"]),
        KMINT_MODELS_DIR=str(tmp_path),
    )
    assert done.code == 6, done.err
    assert "GB are needed" in done.err and "KMINT_MODELS_DIR" in done.err
    assert len(hub.requests) == 1, "more than the head was asked for"


def test_a_disk_that_fills_up_loses_nothing(hub: Hub, tmp_path: Path, model: Path) -> None:
    """Another file fills the disk during a pull: the pull ends with the reason, and later
    continues.
    """
    digest = hub.info()["siblings"][0]["lfs"]["sha256"]
    size = str(model.stat().st_size)
    script = [
        sys.executable,
        "-c",
        FILL,
        f"{hub.endpoint}/blob/tiny-F16.gguf",
        size,
        digest,
        str(tmp_path),
    ]
    done = run_in(with_mount(tmpfs(tmp_path, 90), script))
    assert done.out.splitlines() == [
        f"{tmp_path / 'tiny-F16.gguf'}: no space left on the device",
        size,
    ], done.err


def test_a_read_only_store_is_read_and_not_written(hub: Hub, kmint_home: Path, model: Path) -> None:
    assert kmint("models", "pull", "tiny").code == 0
    store = kmint_home / "data" / "models"
    for arguments, code in (
        (["models", "import", str(model), "--as", "other"], 6),
        (["models", "rm", "tiny", "--yes"], 6),
        (["models", "verify", "tiny"], 0),
        (["models", "ls"], 0),
    ):
        done = run_in(with_mount(read_only(store), KMINT + arguments))
        assert done.code == code, (arguments, done.err)
        assert code == 0 or "read-only" in done.err
    assert (store / "tiny" / "tiny-F16.gguf").exists()


@pytest.mark.parametrize("kind", ["another file system", "spaces and letters", "a link"])
def test_the_store_may_be_anywhere(hub: Hub, tmp_path: Path, model: Path, kind: str) -> None:
    place = tmp_path / "store"
    place.mkdir()
    store, other = place, tmp_path / "wörk 漢字" / "my models"
    if kind == "spaces and letters":
        store = other
    elif kind == "a link":
        other.mkdir(parents=True)
        store = tmp_path / "link"
        store.symlink_to(other)
    script = (
        "kmint() { \"$PYTHON\" -m kmint_tui models \"$@\" || { echo FAILED \"$@\"; exit 9; }; }\n"
        "kmint pull tiny; kmint bundle tiny --out \"$STORE/../b.tar\"; kmint rm tiny --yes\n"
        "kmint import \"$STORE/../b.tar\" --as tiny; kmint verify tiny; kmint rm tiny --yes\n"
        "kmint import \"$MODEL\" --as tiny --copy; cmp \"$MODEL\" \"$STORE/tiny/tiny-F16.gguf\"; kmint rm tiny --yes\n"
        "kmint import \"$MODEL\" --as tiny; kmint verify tiny --json; kmint rm tiny --yes\n"
        "find \"$STORE/\" -type f -o -type l"
    )  # fmt: skip
    shell = ["bash", "-e", "-c", script]
    command = with_mount(tmpfs(place, 200), shell) if kind == "another file system" else shell
    done = run_in(
        command,
        KMINT_MODELS_DIR=str(store),
        STORE=str(store),
        MODEL=str(model),
        PYTHON=sys.executable,
    )
    assert done.code == 0, done.out + done.err
    assert "FAILED" not in done.out
    assert done.out.splitlines()[-1].endswith("tiny-F16.gguf"), "something was left in the store"
    assert model.exists()


class _Proxy(ThreadingHTTPServer):
    """Forwards requests to an address that only it can resolve."""

    def __init__(self, host: str, target: tuple[str, int]) -> None:
        self.host, self.target, self.asked = host, target, list[str]()
        super().__init__(("127.0.0.1", 0), self._handler())

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                proxy.asked.append(self.path)
                connection = http.client.HTTPConnection(*proxy.target)
                wanted = {
                    key: value
                    for key, value in self.headers.items()
                    if key.lower() not in ("connection", "proxy-connection")
                }
                connection.request(
                    "GET", self.path.removeprefix(f"http://{proxy.host}"), headers=wanted
                )
                answer = connection.getresponse()
                self.send_response(answer.status)
                for key, value in answer.getheaders():
                    self.send_header(key, value)
                self.end_headers()
                try:
                    while block := answer.read(1 << 16):
                        self.wfile.write(block)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                connection.close()

        return Handler


def test_a_proxy_and_an_endpoint_are_honoured(hub: Hub, model: Path) -> None:
    """Only the proxy resolves the endpoint's name."""
    hub.public = "http://hub.invalid"
    host, port = hub.endpoint.removeprefix("http://").split(":")
    with _Proxy("hub.invalid", (host, int(port))) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{proxy.server_address[1]}"
        try:
            done = kmint(
                "models",
                "pull",
                "tiny",
                HF_ENDPOINT="http://hub.invalid",
                HTTP_PROXY=address,
                http_proxy=address,
            )
        finally:
            proxy.shutdown()
            thread.join()
    assert done.code == 0, done.err
    assert Path(done.out.strip()).read_bytes() == model.read_bytes()
    expected = (
        f"/api/models/{REPO}",
        f"/{REPO}/resolve/",
        "/blob/tiny-F16.gguf",
        f"/{REPO}/resolve/",
        "/blob/tiny-F16.gguf",
    )
    assert len(proxy.asked) == len(expected), "something else was asked"
    assert all(
        path.startswith(f"http://hub.invalid{start}")
        for path, start in zip(proxy.asked, expected, strict=True)
    )


def test_an_endpoint_that_is_not_there_is_named(hub: Hub) -> None:
    done = kmint("models", "pull", "tiny", HF_ENDPOINT="http://127.0.0.1:9")
    assert (done.code, "127.0.0.1:9 cannot be reached" in done.err) == (4, True), done.err


KMINT = [sys.executable, "-m", "kmint_tui"]


def run_in(command: list[str], **environment: str) -> Done:
    done = subprocess.run(command, capture_output=True, env={**os.environ, **environment})
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    return Done(done.returncode, out, err)
