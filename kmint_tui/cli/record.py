"""`kmint record SCRIPT --function MODULE:NAME`: write one call's shapes, dtypes and strides to a
file that `--input` takes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from convert import files
from kmint_tui.cli.framework import Command
from kmint_tui.cli.state import State
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.errors import StorageError, UsageError


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(path_type=Path), help="The Python script to run.")
@click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, help="Its own arguments, behind `--`."
)
@click.option(
    "--function",
    metavar="MODULE:NAME",
    required=True,
    help="Which function, class or method; NAME alone for one of the script.",
)
@click.option(
    "--call",
    "number",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Record its N-th call.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write.  [default: NAME.call.json]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the recorded call (kmint.call/1) instead of writing a file.",
)
@click.pass_obj
def record(
    state: State,
    script: Path,
    arguments: tuple[str, ...],
    function: str,
    number: int,
    out: Path | None,
    as_json: bool,
) -> int:
    """Run a script of yours and record one call of a function: shapes, dtypes, strides, and values
    that are no tensors.

    \b
      kmint record train.py --function layers:rms_norm
      kmint record serve.py --function Attention.forward --out attention.json -- --steps 1
      kmint mint --reference layers.py:rms_norm --input @rms_norm.call.json

    SCRIPT runs as `python SCRIPT` would, without a sandbox, with the words behind `--` as its
    arguments. It ends once the call is recorded. In the file a size may be changed to a name, such
    as "B": it is then judged at several numbers. Exit code 0 means that the call is recorded, 2
    that there was none.
    """
    from kmint_tui.core.recorded_call import record_of
    from kmint_tui.core.recording import record as record_call
    from referee.reference.unusable import UnusableReference

    if not script.is_file():
        raise UsageError(f"{script} is not a file", fix="give the path of a Python script")
    try:
        found = record_call(script, function, arguments, number)
    except UnusableReference as error:
        fix = "`kmint record --help` shows how a function is named"
        raise UsageError(
            " ".join(str(error).split()), title="nothing was recorded", fix=fix
        ) from error
    document = record_of(function, found.inputs)
    for name, kind in found.left_out.items():
        state.err.note(f"{name} is left out: --input has no words for a {kind}")
    if as_json:
        schema = document.pop("schema")
        state.out.document(schema, document)
        return ExitCode.DONE
    name = re.sub(r"\W+", "_", function.rpartition(":")[2]).strip("_")
    target = out or Path(f"{name}.call.json")
    try:
        files.write_text(target, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror or error}") from error
    state.out.text(str(target))
    state.err.hint(f"use it: --input @{target}")
    return ExitCode.DONE
