"""The smith: prompts, the drafting engine in a child process, and the extraction of kernels.

On the CPU, every draft's tokens can be repeated. The same model file, llama-cpp-python, kind of
processor, prompt, number of drafts, sampling, token limit and seed give the same tokens. The number
of threads, earlier runs, a new process and pauses change nothing (tests/smith/test_drafting.py: ten
runs each).

kmint does not promise the same drafts in these cases.
- Another number of drafts gives other drafts. Rounding depends on the number of rows in a step, so
  draft 3 of 8 is not draft 3 of 4.
- On a GPU, rounding also depends on the device, its driver, the build of llama.cpp, and the number
  of contexts that share a run. That number is measured at loading and then remembered. Two runs on
  one machine usually agree, and nothing checks that they do.
- Another processor (AVX2, AVX-512, ARM), another llama-cpp-python or another quantisation of the
  model gives other drafts.
- A cancelled draft ends at any token. The other drafts of its run are not affected, but with
  `--until first` the referee's speed decides which of them are finished.
- Repair rounds quote the referee, which draws secret inputs for every verdict. So a seed repeats
  only the first round of a session. The history keeps the referee's text with the parent's verdict,
  and every draft's source.
- A remote endpoint receives the seeds, but may ignore them.
"""

from __future__ import annotations

from kmint_tui.smith.engine import Options, Smith
from kmint_tui.smith.events import (
    Choice,
    DraftDone,
    Event,
    Failed,
    Loading,
    ModelLoaded,
    Note,
    RunDone,
    Token,
)
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling

__all__ = [
    "Choice",
    "DraftDone",
    "Event",
    "Failed",
    "ModelLoaded",
    "Loading",
    "Note",
    "Options",
    "Prompt",
    "RunDone",
    "Sampling",
    "Smith",
    "Token",
]
