"""`kmint book` without a GPU: lists, travels, saves after a judgement here, and refuses in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui.book import store
from kmint_tui.book.document import text_of
from kmint_tui.history.store import PASSED, History
from referee.gpu.replayer import Replayer
from tests.book.examples import RIGHT, WRONG, book, entry
from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file with a right kernel for silu, and one for relu2 that computes silu."""
    file = tmp_path / "h200.json"
    whole = book(
        entry(), entry(WRONG, shape="64x4096", ratio=9.0), entry(op="relu2"), sources=(RIGHT, WRONG)
    )
    file.write_text(text_of(whole), encoding="utf-8")
    return file


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def test_an_empty_book_says_how_to_get_one() -> None:
    for arguments in (["book"], ["book", "ls"]):
        done = kmint(*arguments)
        assert done.code == 0 and "`kmint book build` makes one on a GPU" in done.err
    assert kmint("book", "ls", "--json").document["entries"] == []
    for arguments in (["book", "show", "silu"], ["book", "export", "out.json"]):
        done = kmint(*arguments)
        assert done.code == 2 and "there is no book yet" in done.err


def test_a_book_travels_between_machines(foreign: Path, tmp_path: Path) -> None:
    assert kmint("book", "import", str(foreign)).code == 0
    listed = kmint("book", "ls", "--device", "h200")
    assert listed.code == 0 and len(lines(listed.out)) == 4
    assert "imported" in listed.out and "9.000x" in listed.out
    shown = kmint("book", "show", "silu", "--shape", "8192x4096")
    assert "1.500x compile (1.490 to 1.510), win" in shown.out
    assert "eager 60.0, compile 30.0" in shown.out and "commit abc1234" in shown.out
    assert kmint("book", "show", "relu2", "--source").out == RIGHT
    copy = tmp_path / "copy.json"
    assert kmint("book", "export", str(copy)).code == 0
    assert copy.read_text() == foreign.read_text()
    assert kmint("book", "ls", "--json").document["device"] == "NVIDIA H200"


def test_any_rows_are_every_row_count_of_the_book(foreign: Path) -> None:
    assert kmint("book", "import", str(foreign)).code == 0
    shown = kmint("book", "show", "silu", "--shape", "Mx4096:bf16")
    assert "silu 8192x4096" in shown.out and "silu 64x4096" in shown.out
    assert (
        "no kernel of silu at Mx4096:fp32"
        in kmint("book", "show", "silu", "--shape", "Mx4096:fp32").err
    )
    for text in ("Mx0", "MxN", "xM", "0x5", "axb", "8x8:fp8"):
        for verb in (["show", "silu"], ["save", "silu", "--to", "kernels"]):
            done = kmint("book", *verb, "--shape", text)
            assert done.code == 2 and "error: shape not usable: " in done.err, done.err


def test_a_save_judges_here_and_trusts_no_word(
    foreign: Path, tmp_path: Path, kmint_home: Path
) -> None:
    """The kernel with the largest ratio is wrong, and a place does not exist: the file holds the
    other one, and says that its maker is the word of a book.
    """
    odd = book(entry(shape="064x4096", ratio=99.0), entry(shape="zzz", ratio=99.0))
    (tmp_path / "odd.json").write_text(text_of(odd), encoding="utf-8")
    for file in (foreign, tmp_path / "odd.json"):
        assert kmint("book", "import", str(file)).code == 0
    done = kmint("book", "save", "silu", "--to", str(tmp_path / "kernels"), "--json")
    assert done.code == 0, done.err
    assert done.document["holds"][0]["shape"] == "8192x4096"
    assert [one["shape"] for one in done.document["left_out"]] == ["064x4096", "zzz", "64x4096"]
    assert done.document["verdict"]["verdict"] == "correct"
    saved = (tmp_path / "kernels" / "silu.py").read_text(encoding="utf-8")
    assert "the model book of NVIDIA H200, which names embedded" in " ".join(saved.split())
    with History(kmint_home / "data" / "history.db") as history:
        (draft,) = history.drafts(1)
        assert draft.source == RIGHT and draft.outcome in PASSED
    refused = kmint("book", "save", "relu2", "--to", str(tmp_path / "other"))
    assert refused.code == 2 and "none of its kernels can be saved here" in refused.err
    assert not (tmp_path / "other").exists()


def test_a_shape_that_no_operation_has_is_named(tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    odd = book(entry(shape="many"), entry(op="made_up", shape="1x1"))
    file.write_text(text_of(odd), encoding="utf-8")
    kmint("book", "import", str(file))
    done = kmint("book", "save", "silu", "--to", str(tmp_path / "kernels"))
    assert done.code == 2 and "'many:bfloat16' is no shape" in done.err
    assert "made_up" in kmint("book", "ls").out


def test_no_file_that_is_no_book_is_taken(foreign: Path, tmp_path: Path) -> None:
    whole = foreign.read_text()
    for text in ("", "{}", whole[:500], whole.replace("tl.sigmoid", "tl.exp")):
        (tmp_path / "bad.json").write_text(text)
        done = kmint("book", "import", str(tmp_path / "bad.json"))
        assert done.code == 2 and "error: no book:" in done.err and len(lines(done.err)) == 2
    assert kmint("book", "import", str(tmp_path / "absent.json")).code == 2
    assert kmint("book", "ls", "--json").document["entries"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "--shape", "0x5"], "'0x5' is no shape"),
        (["build", "--shape", "Mx0"], "'Mx0' is no shape"),
        (["build", "--shape", "axb", "--ops", "all"], "'axb' is no shape"),
        (["build", "--dtype", "int8"], "--dtype int8 is none of"),
        (["build", "--ops", "softmax,sofmax"], "no operation is called 'sofmax'"),
        (["build", "--ops", "dequant_int8", "--dtype", "bf16"], "gives float16 alone"),
        (["build", "--budget", "0"], "0.0 is not in the range"),
        (["build", "--gpus", "zero"], "names no cards"),
        (["save", "silu", "--to", "kernels", "--device", "a100"], "no single book is of 'a100'"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    done = kmint("book", *arguments)
    assert (done.code, words in done.err) == (2, True), done.err
    assert len([line for line in lines(done.err) if line.startswith("error:")]) == 1


@pytest.mark.parametrize("verb", ["build", "rejudge"])
def test_a_book_without_times_is_not_made(verb: str) -> None:
    if Replayer.available() is None:
        pytest.skip("there is a GPU")
    done = kmint("book", verb)
    assert done.code == 3 and "a book is measured on a GPU, and there is none" in done.err


@pytest.mark.gpu
def test_a_book_is_built_and_judged_again_on_a_gpu(tmp_path: Path) -> None:
    wanted = ["--ops", "silu,softmax", "--shape", "8192x4096", "--drafts", "2"]
    built = kmint("book", "build", *wanted, "--json")
    assert built.code == 0, built.err
    assert {one["op"] for one in built.document["entries"]} == {"silu", "softmax"}
    for one in built.document["entries"]:
        figures = one["figures"]
        assert {"eager", "compile", "max-autotune-no-cudagraphs"} <= figures["baselines"].keys()
        assert figures["low"] <= figures["ratio"] <= figures["high"] and figures["us"] > 0
        assert one["versions"].keys() >= {"kmint", "torch", "triton", "driver", "referee"}
    listed = kmint("book", "ls")
    assert listed.code == 0 and len(lines(listed.out)) == 3
    again = kmint("book", "build", *wanted, "--json")
    assert (again.document["entries"], again.document["known"]) == ([], 2)
    before = kmint("book", "ls", "--json").document["entries"]
    judged = kmint("book", "rejudge", "--json")
    assert judged.code == 0, judged.err
    assert all(abs(one["difference"]) < 0.2 for one in judged.document["entries"])
    assert kmint("book", "ls", "--json").document["entries"] == before
    saved = kmint("book", "save", "softmax", "--to", str(tmp_path), "--json")
    assert saved.code == 0, saved.err
    assert saved.document["verdict"]["mode"] == "replay" and (tmp_path / "softmax.py").exists()


def test_a_claimed_ratio_goes_before_no_own_kernel(tmp_path: Path) -> None:
    claimed = book(entry(WRONG, shape="64x4096", ratio=99.0), sources=(WRONG,))
    (tmp_path / "claimed.json").write_text(text_of(claimed), encoding="utf-8")
    kmint("book", "import", str(tmp_path / "claimed.json"))
    own = entry(ratio=1.1)
    store.put("NVIDIA H200", (own,), {own.source_sha256: RIGHT})
    assert kmint("book", "show", "silu", "--source").out == RIGHT
