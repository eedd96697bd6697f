"""A short generation with a model file: proves that llama.cpp loads it, and measures its memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kmint_tui.errors import EnvironmentUnfit, KmintError, ModelError, UsageError
from kmint_tui.models.check import ModelFile
from kmint_tui.models.fit import Estimate, estimate, readable
from kmint_tui.models.usage import Used, read
from kmint_tui.smith import Options, Smith
from kmint_tui.smith.events import Choice, DraftDone, Failed, ModelLoaded, RunDone
from kmint_tui.smith.prompts import Prompt

DRAFTS, TOKENS = 2, 24
PROMPT = Prompt(
    "Write Triton kernels.",
    "Op `relu`: elementwise maximum with 0.\nSignature:\n  run(x: Tensor[M, N]) -> Tensor[M, N]",
)
_ERRORS: dict[int, type[KmintError]] = {2: UsageError, 3: EnvironmentUnfit}


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """The result. `used` is None without figures in llama.cpp's log.

    `choices` are the engine's own decisions.
    """

    tokens: int
    seconds: float
    load_seconds: float
    text: str
    gpu_layers: int
    choices: tuple[Choice, ...]
    expected: Estimate
    used: Used | None

    def to_json(self) -> dict[str, Any]:
        """The JSON form: sizes in bytes, `error` as a part of the real size."""
        error = self.used.error(self.expected) if self.used else None
        return {**asdict(self), "error": error}

    def pairs(self) -> list[tuple[str, str]]:
        """Lines for the user."""
        where = f"{self.gpu_layers} layers on the GPU" if self.gpu_layers else "on the CPU"
        speed = (
            f"{self.tokens} tokens in {self.seconds:.2f} s {where}, loaded in "
            f"{self.load_seconds:.1f} s"
        )
        lines = [("smoke", speed), ("wrote", " ".join(self.text.split())[:100])]
        if self.used is not None:
            difference = f"{100 * self.used.error(self.expected):+.1f} %"
            lines.append(
                (
                    "memory",
                    f"{readable(self.used.buffers)} taken, "
                    f"{readable(self.expected.buffers)} estimated ({difference})",
                )
            )
        return lines


def smoke(model: ModelFile, log: Path) -> Smoke:
    """Let `model` write a few tokens; `log` gets llama.cpp's output and is removed on success.

    Raises ModelError when llama.cpp refuses the model or it writes nothing, EnvironmentUnfit when
    this machine cannot run it.
    """
    loaded: ModelLoaded | None = None
    done: RunDone | None = None
    drafts: list[DraftDone] = []
    with Smith(model.path, Options(log=log)) as smith:
        for event in smith.draft(PROMPT, DRAFTS, max_tokens=TOKENS):
            if isinstance(event, Failed):
                raise _ERRORS.get(event.exit_code, ModelError)(
                    f"{model.path}: {event.reason}", fix=f"llama.cpp's output is in {log}"
                )
            loaded = event if isinstance(event, ModelLoaded) else loaded
            done = event if isinstance(event, RunDone) else done
            drafts += [event] if isinstance(event, DraftDone) else []
    if loaded is None or done is None or done.tokens == 0:
        raise ModelError(f"{model.path} writes nothing", fix=f"llama.cpp's output is in {log}")
    expected = estimate(
        model,
        drafts=DRAFTS,
        max_tokens=TOKENS,
        prompt_tokens=done.prompt_tokens,
        gpu=loaded.gpu_layers > 0,
    )
    used = read(log)
    log.unlink(missing_ok=True)
    text = max((draft.text for draft in drafts), key=len, default="")
    return Smoke(
        tokens=done.tokens,
        seconds=done.seconds,
        load_seconds=loaded.seconds,
        text=text,
        gpu_layers=loaded.gpu_layers,
        choices=loaded.choices,
        expected=expected,
        used=used,
    )
