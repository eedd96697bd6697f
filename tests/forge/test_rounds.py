"""A run of expert iteration with the real referee: rewards, restarts and what is on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forge import iterate
from forge.checkpoint import EMBEDDED, Checkpoint, read, write
from forge.drafting import Draft, Sampler, draft_all
from forge.finetune import Training, finetune
from forge.judging import Judge
from forge.model import Llama, Shape
from forge.packed import Pair
from forge.places import Place, places
from forge.rounds import Run, Settings
from forge.selection import FASTEST, select
from kmint_tui.core.judges import Opened, of_referee
from kmint_tui.errors import UsageError
from kmint_tui.smith.canonical import canonical
from kmint_tui.template.structures import kernel_source
from kmint_tui.template.write import program_source, usual_structure
from referee.judge import Referee

SMALL = Shape(vocabulary=1088, hidden=32, layers=1, heads=1, head_dim=32, ffn=32, context=1024)
SETTINGS = Settings(
    seed=5,
    samples=3,
    heldout_samples=1,
    most_tokens=8,
    replay=0.5,
    training=Training(passes=1.0, batch_tokens=512, rate=1e-2, most_steps=4, every=2),
)


class Stopped(Exception):
    """The end of a run that is interrupted."""


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    with Referee(mode="interpret") as referee:
        yield of_referee(referee, threads=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "small"
    write(Checkpoint(Llama(SMALL, seed=2), read(EMBEDDED).tokenizer), folder)
    return folder


@pytest.fixture(scope="module")
def gelu() -> tuple[Place, ...]:
    return places(["gelu"], (), ("64x128",), heldout=False)


@pytest.fixture(scope="module")
def relu2() -> tuple[Place, ...]:
    return places(["relu2"], (), ("64x128",), heldout=True)


def draft(place: Place, number: int, answer: str) -> Draft:
    source = program_source(place.program, {place.program.main: answer})
    return Draft(
        place=place.name,
        number=number,
        answer=answer,
        source=source,
        same=canonical(source),
        tokens=5,
        cut=False,
    )


def drafts_of(place: Place) -> list[Draft]:
    """A right kernel, a wrong one, and one that does not compile."""
    right = kernel_source(place.stage, *usual_structure(place.stage))
    wrong = right.replace("v0 = ", "v0 = 2 * ", 1)
    assert wrong != right
    return [draft(place, 0, wrong), draft(place, 1, right), draft(place, 2, right + "nothing(\n")]


def run_of(
    home: Path, gelu: tuple[Place, ...], relu2: tuple[Place, ...], opened: Opened, **other: Any
) -> Run:
    return Run(
        home,
        other.pop("settings", SETTINGS),
        places=gelu,
        heldout=relu2,
        judge=Judge(opened, home / "verdicts", 7),
        device="cpu",
        about={"device": "cpu"},
        **other,
    )


def prepared(home: Path, place: Place) -> None:
    """Drafts of the first round, as an interrupted run leaves them."""
    folder = home / "rounds" / "01" / "drafts"
    folder.mkdir(parents=True)
    made = [asdict(one) for one in drafts_of(place)]
    (folder / "0000.json").write_text(json.dumps(made), encoding="utf-8")


def stop_at(text: str) -> Callable[[str], None]:
    def tell(said: str) -> None:
        if text in said:
            raise Stopped

    return tell


def weights(home: Path, number: int) -> dict[str, torch.Tensor]:
    found = read(home / "models" / f"{number:02d}").model
    return {name: value.detach() for name, value in found.named_parameters()}


def test_the_referee_alone_decides_what_is_kept(
    tmp_path: Path, gelu: tuple[Place, ...], relu2: tuple[Place, ...], opened: Opened, model: Path
) -> None:
    prepared(tmp_path / "a", gelu[0])
    run = run_of(tmp_path / "a", gelu, relu2, opened)
    run.start(model)
    run.rounds(1)
    chosen = json.loads((tmp_path / "a/rounds/01/kept.json").read_text(encoding="utf-8"))
    assert [one["answer"] for one in chosen["kept"]] == [drafts_of(gelu[0])[1].answer]
    (figures,) = run.state["rounds"]
    assert (figures["judged"], figures["right"], figures["kept"]) == (3, 1, 1)
    assert figures["speed"] is None
    assert figures["training"]["own"] == 1 and figures["training"]["steps"] > 0
    assert len(run.state["evaluations"]) == 2
    old, new = weights(tmp_path / "a", 0), weights(tmp_path / "a", 1)
    assert not torch.equal(old["model.norm.weight"], new["model.norm.weight"])
    assert not list((tmp_path / "a").rglob("training.pt"))

    # A run that was stopped in the middle ends with the same figures and the same weights.
    prepared(tmp_path / "b", gelu[0])
    for text in ("model 0, training", "step 2 of"):
        broken = run_of(tmp_path / "b", gelu, relu2, opened, tell=stop_at(text))
        broken.start(model)
        with pytest.raises(Stopped):
            broken.rounds(1)
    verdicts = {path: path.stat().st_mtime_ns for path in (tmp_path / "b/verdicts").iterdir()}
    said: list[str] = []
    again = run_of(tmp_path / "b", gelu, relu2, opened, tell=said.append)
    again.rounds(1)
    assert "training continues after step 2" in said
    assert all(path.stat().st_mtime_ns == time for path, time in verdicts.items())
    assert again.state["rounds"] == run.state["rounds"]
    assert again.state["evaluations"] == run.state["evaluations"]
    assert all(torch.equal(new[name], value) for name, value in weights(tmp_path / "b", 1).items())

    # A finished run has nothing left to do, and other options are refused.
    run_of(tmp_path / "b", gelu, relu2, opened, tell=stop_at("")).rounds(1)
    with pytest.raises(UsageError, match="other settings"):
        run_of(tmp_path / "b", gelu, relu2, opened, settings=replace(SETTINGS, seed=6))


@pytest.mark.gpu
def test_a_gpu_times_the_right_kernel(tmp_path: Path) -> None:
    (place,) = places(["softmax"], (), ("4096x1024:bf16",), heldout=False)
    right, wrong = drafts_of(place)[1], drafts_of(place)[0]
    with Referee() as referee:
        judge = Judge(of_referee(referee), tmp_path, 7)
        found = judge.judge_all([place], [right, wrong])
        assert judge.level == "full" and judge.device != "cpu"
    assert found[place.name, right.same].right and found[place.name, right.same].is_timed
    assert not found[place.name, wrong.same].right
    (kept,) = select([place], [wrong, right], found, 1)
    assert (kept.answer, kept.weight) == (right.answer, FASTEST)


def test_a_round_without_a_right_draft_keeps_the_model(
    tmp_path: Path, gelu: tuple[Place, ...], opened: Opened, model: Path
) -> None:
    run = run_of(tmp_path, gelu, (), opened)
    run.start(model)
    run.rounds(1)
    (figures,) = run.state["rounds"]
    assert (figures["drafts"], figures["right"], figures["kept"]) == (3, 0, 0)
    assert figures["training"]["steps"] == 0
    old, new = weights(tmp_path, 0), weights(tmp_path, 1)
    assert all(torch.equal(old[name], value) for name, value in new.items())


def test_no_verdict_begins_after_the_time(
    tmp_path: Path, gelu: tuple[Place, ...], opened: Opened
) -> None:
    judge = Judge(opened, tmp_path, 7)
    found = judge.judge_all(gelu, drafts_of(gelu[0]), seconds=0.0, tell=lambda said: None)
    assert found == {}
    assert not list(tmp_path.iterdir())


def test_only_missing_batches_are_sampled(
    tmp_path: Path, gelu: tuple[Place, ...], model: Path
) -> None:
    some = tuple(
        place
        for name in ("softmax", "gelu", "silu")
        for place in places([name], (), ("64x128",), heldout=False)
    )
    how = Sampler(samples=16, seed=3, device="cpu", most_tokens=4)
    first = draft_all(read(model), some, how, tmp_path, lambda said: None)
    assert [one.place for one in first] == [place.name for place in some for _ in range(16)]
    (tmp_path / "0001.json").unlink()
    said: list[str] = []
    assert draft_all(read(model), some, how, tmp_path, said.append) == first
    assert said == ["16 drafts of batch 2 sampled"]


def test_training_learns_an_example_and_needs_no_kernel(tmp_path: Path, model: Path) -> None:
    example = Pair("a b c", "x = tl.load(a)\n", "")
    checkpoint = read(model)
    how = Training(passes=60, batch_tokens=1, rate=1e-2, every=1000)
    figures = finetune(
        checkpoint,
        [example],
        how,
        seed=1,
        device="cpu",
        file=tmp_path / "part.pt",
        tell=lambda said: None,
    )
    assert figures["sequences"] == figures["steps"] > 60
    assert figures["loss"][-1] < 0.3 * figures["loss"][0]


def test_the_command_refuses_bad_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command hides the GPUs from its process.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    home = ["--home", str(tmp_path), "--device", "cpu", "--shapes", "64x128"]
    assert iterate.main([*home, "--ops", "reglu", "--heldout-ops", "none"]) == 2
    assert "reglu is held out, so training must not see it" in capsys.readouterr().err
    assert iterate.main([*home, "--ops", "gelu", "--shapes", "0x5"]) == 2
    assert "'0x5' is no shape" in capsys.readouterr().err
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    assert iterate.main([*home, "--ops", "gelu"]) == 2
    assert "add --resume" in capsys.readouterr().err
