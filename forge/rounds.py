"""Expert iteration on the disk: rounds of drafts, verdicts, a choice, and training.

A round drafts with the present model, asks the referee, and keeps right kernels. It trains the next
model on them and on a part of the corpus. Before the first round and after each one the model
drafts for held-out places, whose kernels enter no training.

The folder of a run:

    run.json           settings, and the figures of every evaluation and round that is done
    models/00, 01, ...  the model before the first round, after the first, ...
    rounds/01, ...      drafts, kept kernels and training of each round
    heldout/00, ...     drafts of each model for held-out places
    verdicts/           every verdict by its job

Every file appears whole. A file that is there is not made again, so a killed run continues where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from convert import files
from forge.checkpoint import Checkpoint, read, write
from forge.digests import seed_of
from forge.drafting import Draft, Sampler, draft_all
from forge.figures import change, figures_of, in_words
from forge.finetune import Training, finetune
from forge.judging import Judge, Key, Reward
from forge.places import Place
from forge.selection import Kept, examples, replayed, select
from kmint_tui.errors import UsageError
from kmint_tui.graph.program import stage_text

SCHEMA = "kmint.forge.iterate/1"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that decide a run. `seconds` bounds the judging of one round or evaluation.

    `replay` is the share of the corpus in the examples of a round, below 1.
    """

    seed: int
    samples: int
    heldout_samples: int
    temperature: float = 0.7
    most_tokens: int = 900
    replay: float = 0.75
    seconds: float | None = None
    training: Training = field(default_factory=Training)


@dataclass(frozen=True)
class _Judged:
    drafts: Sequence[Draft]
    rewards: Mapping[Key, Reward]
    figures: dict[str, Any]


class Run:
    """A run in the folder `home`. Raises UsageError for a folder of another run."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        places: Sequence[Place],
        heldout: Sequence[Place],
        judge: Judge,
        device: str,
        about: Mapping[str, Any],
        tell: Callable[[str], object] = print,
    ) -> None:
        """`about` is kept as the environment: machine, versions, and the reason for no times."""
        self.home, self._settings, self._judge = home, settings, judge
        self._places, self._heldout = tuple(places), tuple(heldout)
        self._device, self._tell = device, tell
        wanted = {
            "schema": SCHEMA,
            "settings": asdict(settings),
            "places": [place.name for place in places],
            "heldout": [place.name for place in heldout],
            "environment": dict(about),
        }
        self._file = home / "run.json"
        home.mkdir(parents=True, exist_ok=True)
        files.sweep(home)
        if self._file.exists():
            self._state = json.loads(self._file.read_text(encoding="utf-8"))
            if differ := [name for name, value in wanted.items() if self._state[name] != value]:
                raise UsageError(
                    f"the run in {home} has other {', '.join(differ)}",
                    fix="give the same options, or another --home",
                )
        else:
            self._state = {**wanted, "evaluations": [], "rounds": []}
            self._write()

    @property
    def state(self) -> dict[str, Any]:
        """The content of run.json."""
        found: dict[str, Any] = self._state
        return found

    def start(self, model: Path) -> None:
        """Keep the model before the first round."""
        if not self._model(0).exists():
            write(read(model), self._model(0))

    def rounds(self, count: int) -> None:
        """Do the rounds up to number `count` that are not done."""
        self._evaluate(0)
        for number in range(1, count + 1):
            if len(self._state["rounds"]) < number:
                self._round(number)
            self._evaluate(number)

    def _round(self, number: int) -> None:
        """One round: it ends with the next model and the round's figures."""
        folder = self.home / "rounds" / f"{number:02d}"
        chosen = folder / "kept.json"
        if not chosen.exists():
            judged = self._judged(
                number - 1, self._places, self._settings.samples, folder / "drafts", "training"
            )
            earlier = self.home / "rounds" / f"{number - 1:02d}" / "kept.json"
            before = _kept(earlier) if number > 1 else []
            kept = select(self._places, judged.drafts, judged.rewards, number, before)
            content = {"figures": judged.figures, "kept": [asdict(one) for one in kept]}
            files.write_text(chosen, json.dumps(content, indent=1) + "\n")
        kept = _kept(chosen)
        training = self._trained(number, folder, kept)
        self._state["rounds"].append(
            {
                "round": number,
                **json.loads(chosen.read_text(encoding="utf-8"))["figures"],
                "kept": len(kept),
                "kept_new": sum(one.round == number for one in kept),
                "weight": sum(one.weight for one in kept),
                "training": training,
            }
        )
        self._write()

    def _evaluate(self, number: int) -> None:
        """Figures of model `number` on the held-out places."""
        if not self._heldout or len(self._state["evaluations"]) > number:
            return
        folder = self.home / "heldout" / f"{number:02d}"
        samples = self._settings.heldout_samples
        figures = self._judged(number, self._heldout, samples, folder, "heldout").figures
        models = self._state["evaluations"]
        found = change(models[0] if models else figures, figures)
        models.append({"model": number, **figures, "change": found})
        self._write()
        self._tell(f"held-out, from model 0 to {number}: {json.dumps(found)}")

    def _judged(
        self, model: int, places: Sequence[Place], samples: int, folder: Path, kind: str
    ) -> _Judged:
        """Drafts of a model for places, their rewards, and the figures."""
        settings = self._settings
        # Every model has the same seed on the held-out places, so that the models alone differ.
        seed = seed_of(settings.seed, kind, model if kind == "training" else 0)
        how = Sampler(
            samples=samples,
            seed=seed,
            device=self._device,
            most_tokens=settings.most_tokens,
            temperature=settings.temperature,
        )
        drafts = draft_all(read(self._model(model)), places, how, folder, self._tell)
        rewards = self._judge.judge_all(places, drafts, seconds=settings.seconds, tell=self._tell)
        figures = figures_of(places, drafts, rewards)
        self._tell(f"model {model}, {kind} places:\n{in_words(figures)}")
        return _Judged(drafts, rewards, figures)

    def _trained(self, number: int, folder: Path, kept: Sequence[Kept]) -> dict[str, Any]:
        """Train and save the next model; without a right kernel it equals the present one."""
        target, report = self._model(number), folder / "training.json"
        if target.exists():
            found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
            return found
        settings, model = self._settings, read(self._model(number - 1))
        figures: dict[str, Any] = {"steps": 0, "own": 0, "replayed": 0}
        partial = folder / "training.pt"
        if kept:
            seed = seed_of(settings.seed, "training", number)
            own = examples(self._places, kept, seed)
            count = round(len(own) * settings.replay / (1 - settings.replay))
            names = {one.place for one in kept}
            stages = {stage_text(one.stage) for one in self._places if one.name in names}
            old = replayed(count, stages, seed) if count else []
            self._tell(f"training on {len(own)} own examples and {len(old)} of the corpus")
            figures = finetune(
                model,
                [*own, *old],
                settings.training,
                seed=seed,
                device=self._device,
                file=partial,
                tell=self._tell,
            )
            figures |= {"own": len(own), "replayed": len(old)}
        files.write_text(report, json.dumps(figures, indent=1) + "\n")
        write(Checkpoint(model.model.cpu(), model.tokenizer), target)
        partial.unlink(missing_ok=True)
        return figures

    def _model(self, number: int) -> Path:
        return self.home / "models" / f"{number:02d}"

    def _write(self) -> None:
        files.write_text(self._file, json.dumps(self._state, indent=1) + "\n")


def _kept(file: Path) -> list[Kept]:
    return [Kept(**one) for one in json.loads(file.read_text(encoding="utf-8"))["kept"]]
