"""The readers that `fuzz_readers.py` feeds: how an input reaches each, and which errors its caller
turns into a message.

A reader is called as the commands call it, in this process. Every error that is not listed would
end a command with exit code 70.
"""

from __future__ import annotations

from bench import fuzz_inputs, fuzz_kept, fuzz_strangers
from bench.fuzz_reader import Reader

_CONVERT = ("ConvertError",)
_REFEREE = ("JobLost", "InterpreterUnsupported")
READERS = (
    Reader("history import", fuzz_inputs.change_lines, fuzz_kept.history_import),
    Reader("config.toml", fuzz_inputs.change_toml, fuzz_kept.settings),
    Reader("tui.toml", fuzz_inputs.change_toml, fuzz_kept.interface),
    Reader("tui-state.json", fuzz_inputs.change_json, fuzz_kept.interface_state),
    Reader("receipt", fuzz_inputs.change_json, fuzz_kept.receipt),
    Reader("saved kernel", fuzz_inputs.change_toml, fuzz_kept.saved_kernel),
    Reader("book", fuzz_inputs.change_json, fuzz_kept.book),
    Reader("grid report", fuzz_inputs.change_json, fuzz_kept.grid_report),
    Reader("grid record", fuzz_inputs.change_bytes, fuzz_kept.grid_record, ("GridError",)),
    Reader("models.toml", fuzz_inputs.change_toml, fuzz_strangers.user_registry),
    Reader("bundle", fuzz_inputs.change_tar, fuzz_strangers.bundle),
    Reader("model digests", fuzz_inputs.change_json, fuzz_strangers.model_digests),
    Reader("smith notes", fuzz_inputs.change_json, fuzz_strangers.smith_notes),
    Reader("smith event", fuzz_inputs.change_json, fuzz_strangers.smith_event, ("ValueError",)),
    Reader(
        "endpoint models",
        fuzz_inputs.change_json,
        fuzz_strangers.endpoint_models,
        ("KmintError", "ValueError"),
    ),
    Reader(
        "endpoint stream",
        fuzz_inputs.change_json,
        fuzz_strangers.endpoint_stream,
        ("KmintError", "ValueError"),
    ),
    Reader("hub index", fuzz_inputs.change_json, fuzz_strangers.hub_index),
    Reader("part note", fuzz_inputs.change_json, fuzz_strangers.part_note),
    Reader("origin note", fuzz_inputs.change_json, fuzz_strangers.origin_note),
    Reader(
        "recorded call",
        fuzz_inputs.change_json,
        fuzz_kept.recorded_call,
        ("UnusableReference", "RecordError"),
    ),
    Reader("compiled kernel", fuzz_inputs.change_json, fuzz_kept.compiled_kernel),
    Reader("interpreter answer", fuzz_inputs.change_json, fuzz_kept.interpreter_answer, _REFEREE),
    Reader(
        "config.json", fuzz_inputs.change_json, fuzz_strangers.checkpoint("config.json"), _CONVERT
    ),
    Reader(
        "tokenizer.json",
        fuzz_inputs.change_json,
        fuzz_strangers.checkpoint("tokenizer.json"),
        _CONVERT,
    ),
    Reader(
        "tokenizer_config.json",
        fuzz_inputs.change_json,
        fuzz_strangers.checkpoint("tokenizer_config.json"),
        _CONVERT,
    ),
    Reader(
        "adapter_config.json",
        fuzz_inputs.change_json,
        fuzz_strangers.checkpoint("adapter_config.json"),
        _CONVERT,
    ),
)
