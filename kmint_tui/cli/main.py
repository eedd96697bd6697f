"""The `kmint` command: what runs when, and which exit code it ends with."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kmint_tui import __version__
from kmint_tui.cli.diagnostics import ExitCode, exit_code
from kmint_tui.cli.framework import Lazy, LazyGroup
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import drop, prepare
from kmint_tui.cli.termination import Terminated, orderly
from kmint_tui.errors import KmintError, UsageError, is_full, storage_error

_PACKAGE = "kmint_tui.cli"

COMMANDS = {
    "mint": Lazy(f"{_PACKAGE}.mint:mint", "Draft kernels for an operation and referee every draft."),
    "judge": Lazy(f"{_PACKAGE}.judge:judge", "Referee a kernel file that someone or something else wrote."),
    "ops": Lazy(f"{_PACKAGE}.ops:ops", "List the operations, or show one."),
    "history": Lazy(f"{_PACKAGE}.history:history", "List what was minted, or show one session or draft."),
    "crowns": Lazy(f"{_PACKAGE}.crowns:crowns", "Who is fastest at what, on which device; claim a crown."),
    "save": Lazy(f"{_PACKAGE}.save:save", "Save a kernel that passed into a project."),
    "gate": Lazy(f"{_PACKAGE}.gate:gate", "Time a kernel again in five fresh processes: does its claim survive?"),
    "grid": Lazy(f"{_PACKAGE}.grid:grid", "Time a kernel at every shape and dtype, every losing cell shown."),
    "verify": Lazy(f"{_PACKAGE}.verify:verify", "Check saved kernels: unchanged, and still passed by the referee?"),
    "models": Lazy(f"{_PACKAGE}.models:models", "The smiths: list, show, pull, import, bundle, verify, remove."),
    "convert": Lazy(f"{_PACKAGE}.convert:convert", "Merge an adapter into its base and write a proven GGUF."),
    "selftest": Lazy(f"{_PACKAGE}.selftest:selftest", "Test the referee on kernels whose verdict is known."),
    "doctor": Lazy(f"{_PACKAGE}.doctor:doctor", "What works on this machine, what does not, and what to do about it."),
    "path": Lazy(f"{_PACKAGE}.path:path", "Show where kmint keeps things."),
    "config": Lazy(f"{_PACKAGE}.config:config", "Show or check the settings."),
    "completion": Lazy(f"{_PACKAGE}.completion:completion", "Print the shell completion script."),
}

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"  {code.value:<4} {code.meaning}" for code in ExitCode)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="kmint", message="%(prog)s %(version)s")
@click.pass_context
def kmint(context: click.Context) -> None:
    """Mint fused Triton kernels on your own machine: a small model drafts, a strict referee judges.

    \b
      kmint mint softmax                  draft, referee, rank
      kmint judge kernel.py --op softmax  referee a file
    """
    if context.invoked_subcommand is not None:
        return
    state = context.ensure_object(State)
    if sys.stdin.isatty() and sys.stdout.isatty():
        from kmint_tui.app import run

        context.exit(run(offline=state.is_offline))
    state.err.note(context.get_help())
    context.exit(ExitCode.USAGE)


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing escapes as a traceback unless `--debug` is given."""
    prepare()
    state = State()
    try:
        with orderly():
            result = kmint.main(arguments, prog_name="kmint", standalone_mode=False, obj=state)
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except SystemExit:
        # With standalone_mode off click ends so for one thing only: the reader of the help, or of the version, has gone away.
        return ExitCode.DONE
    except click.ClickException as error:
        state.err.error(_usage(error))
        return ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        state.err.note("stopped")
        return ExitCode.INTERRUPTED
    except Terminated as signal:
        state.err.note("stopped")
        return 128 + signal.number
    except KmintError as error:
        if state.debug:
            state.err.internal(error, debug=True)
        state.err.error(error)
        return exit_code(error)
    except Exception as error:
        if isinstance(error, OSError) and is_full(error):
            if error.filename is None:
                # What is still in Python's own buffer would be tried once more at the end, and change the exit code.
                drop(sys.stdout)
            state.err.error(storage_error(Path(error.filename or "stdout"), error))
            return ExitCode.STORAGE
        state.err.internal(error, debug=state.debug)
        return ExitCode.INTERNAL


def _usage(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "kmint"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return UsageError("a command is missing", fix=f"run `{command} --help`")
    message = " ".join(error.format_message().split())
    return UsageError(message[:1].lower() + message[1:], fix=f"run `{command} --help`")


if __name__ == "__main__":
    sys.exit(main())
