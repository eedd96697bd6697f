"""The interpreter's job, for tests of its tapes: without any, and one that tells of them. Run in
the sandbox.
"""

import json
import pickle
import sys
from collections.abc import Callable, Sequence
from unittest.mock import patch

from referee.interpreter.batch import Batches
from referee.interpreter.job import interpret_entry
from referee.interpreter.recorded_program import RecordedProgram
from referee.interpreter.recorder import Recorder

RECORD, PLAY = Recorder.record, Batches.replay


def without_tapes(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As `interpret_entry`, with the Python of every program run."""
    with patch.object(Recorder, "record", lambda recorder, program, constant, varying: program()):
        return interpret_entry(payload, scratch, fds)


def told(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As `interpret_entry`, but its last run fails with a message of how many operations each tape
    has; null where there is none.
    """
    made: list[int | None] = []

    def record(
        recorder: Recorder,
        program: Callable[[], None],
        constant: Sequence[object],
        varying: Sequence[object],
    ) -> RecordedProgram | None:
        tape = RECORD(recorder, program, constant, varying)
        made.append(None if tape is None else len(tape.steps))
        return tape

    with patch.object(Recorder, "record", record):
        answers = json.loads(interpret_entry(payload, scratch, fds))
    assert len(answers) == len(pickle.loads(payload).runs) and not any(answers), answers
    return json.dumps(
        [*answers[1:], {"kind": "kernel_error", "message": json.dumps(made)}]
    ).encode()


def batched(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As `interpret_entry`, but its last run fails with a message of how many programs each launch
    played at once.
    """
    played: list[int] = []

    def play(
        batches: Batches,
        tape: RecordedProgram,
        arguments: Sequence[object],
        programs: Sequence[tuple[int, ...]],
    ) -> bool:
        done = PLAY(batches, tape, arguments, programs)
        played.append(len(programs) if done else 0)
        return done

    with patch.object(Batches, "replay", play):
        answers = json.loads(interpret_entry(payload, scratch, fds))
    assert len(answers) == len(pickle.loads(payload).runs) and not any(answers), answers
    return json.dumps(
        [*answers[1:], {"kind": "kernel_error", "message": json.dumps(played)}]
    ).encode()


def modules(payload: bytes, scratch: str, fds: tuple[int, ...]) -> bytes:
    """As `interpret_entry`, but its last run fails with a message that says whether torch is
    loaded.
    """
    answers = json.loads(interpret_entry(payload, scratch, fds))
    assert not any(answers), answers
    return json.dumps(
        [*answers[1:], {"kind": "kernel_error", "message": f"torch: {'torch' in sys.modules}"}]
    ).encode()
