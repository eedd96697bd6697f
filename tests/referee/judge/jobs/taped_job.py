"""The interpreter's job, for tests of its tapes: without any, and one that tells of them. Run in the sandbox."""

import json
import pickle
from collections.abc import Callable, Sequence
from unittest.mock import patch

from referee.interpreter.job import interpret_entry
from referee.interpreter.recording import Recorder
from referee.interpreter.tape import Tape

RECORD = Recorder.record


def without_tapes(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As `interpret_entry`, with the Python of every program run."""
    with patch.object(Recorder, "record", lambda recorder, program, arguments: program()):
        return interpret_entry(payload, scratch, fds)


def told(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As `interpret_entry`, but its last run fails with a message of how many operations each tape has; null where there is none."""
    made: list[int | None] = []

    def record(recorder: Recorder, program: Callable[[], None], arguments: Sequence[object]) -> Tape | None:
        tape = RECORD(recorder, program, arguments)
        made.append(None if tape is None else len(tape.steps))
        return tape

    with patch.object(Recorder, "record", record):
        answers = json.loads(interpret_entry(payload, scratch, fds))
    assert len(answers) == len(pickle.loads(payload).runs) and not any(answers), answers
    return json.dumps([*answers[1:], {"kind": "kernel_error", "message": json.dumps(made)}]).encode()
