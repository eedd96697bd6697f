"""The smith: prompts, the drafting engine in a child process, and the cutting of kernels out of its answers."""

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
