"""The smith: prompts, the drafting engine in a child process, and the cutting of kernels out of its answers.

What can be repeated, on the CPU: the same model file, the same llama-cpp-python, the same kind of processor, and the same
prompt, number of drafts, sampling, token limit and seed give the same tokens for every draft. Neither the number of threads,
nor what ran before, nor a new process changes them, nor does a pause (tests/smith/test_drafting.py: ten runs each).

What is not promised:
- another number of drafts gives other drafts: rounding depends on how many rows are computed at once, so draft 3 of 8 is not
  draft 3 of 4;
- on a GPU, rounding also depends on the device, its driver and the build of llama.cpp, and on how many contexts share a run's
  drafts, which is measured when a model is loaded and then remembered; two runs on one machine usually agree, and nothing
  checks that they do;
- another processor (AVX2, AVX-512, ARM), another llama-cpp-python or another quantisation of the model gives other drafts;
- a draft that was cancelled ends wherever the moment found it. The others of its run are not affected, but with
  `--until first` it depends on the referee's speed which ones are finished;
- repair rounds quote the referee, which draws its inputs from a secret seed for every verdict; so only the first round of a
  session is repeated by its seed. What was said is kept with the verdict on the parent, and every draft's source is kept;
- an endpoint elsewhere is given the seeds, and what it makes of them is its own business.
"""

from __future__ import annotations

from kmint_tui.smith.engine import Options, Smith
from kmint_tui.smith.events import Choice, DraftDone, Event, Failed, Loaded, Loading, Note, RunDone, Token
from kmint_tui.smith.prompts import Prompt
from kmint_tui.smith.sampling import Sampling

__all__ = [
    "Choice",
    "DraftDone",
    "Event",
    "Failed",
    "Loaded",
    "Loading",
    "Note",
    "Options",
    "Prompt",
    "RunDone",
    "Sampling",
    "Smith",
    "Token",
]
