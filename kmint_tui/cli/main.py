"""The `kmint` command: its commands, its global options and its exit code."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import NoReturn

import click

from kmint_tui import __version__, paths
from kmint_tui.cli.framework import Lazy, LazyGroup
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import drop, prepare
from kmint_tui.cli.termination import Terminated, leave, orderly
from kmint_tui.core.exit_codes import ExitCode, exit_code
from kmint_tui.errors import KmintError, UsageError, is_full, storage_error

_PACKAGE = "kmint_tui.cli"

COMMANDS = {
    "mint": Lazy(
        f"{_PACKAGE}.mint:mint", "Draft kernels for an operation and referee every draft."
    ),
    "tune": Lazy(
        f"{_PACKAGE}.tune:tune", "Find the fastest settings and structures at your shapes."
    ),
    "judge": Lazy(f"{_PACKAGE}.judge:judge", "Referee kernel files of any author."),
    "serve": Lazy(f"{_PACKAGE}.serve:serve", "Keep a referee warm for the other commands."),
    "workers": Lazy(
        f"{_PACKAGE}.workers:workers", "Show the devices that can judge, and their current jobs."
    ),
    "mcp": Lazy(f"{_PACKAGE}.agent:mcp", "Serve kmint's tools to a coding agent over MCP."),
    "skill": Lazy(f"{_PACKAGE}.skill:skill", "Show or install the skill file for coding agents."),
    "record": Lazy(
        f"{_PACKAGE}.record:record", "Run a script of yours and record the inputs of one call."
    ),
    "ops": Lazy(f"{_PACKAGE}.ops:ops", "List the operations, or show one."),
    "history": Lazy(
        f"{_PACKAGE}.history:history", "List the minted kernels, or show one session or draft."
    ),
    "crowns": Lazy(
        f"{_PACKAGE}.crowns:crowns",
        "Show the fastest kernel of each operation and device; claim a crown.",
    ),
    "save": Lazy(f"{_PACKAGE}.save:save", "Save a kernel that passed into a project."),
    "gate": Lazy(
        f"{_PACKAGE}.gate:gate",
        "Time a kernel again in five fresh processes: does its claim survive?",
    ),
    "grid": Lazy(
        f"{_PACKAGE}.grid:grid", "Time a kernel at every shape and dtype, every losing cell shown."
    ),
    "book": Lazy(
        f"{_PACKAGE}.book:book",
        "The best verified kernels by operation and shape: list, build, save, judge again.",
    ),
    "profile": Lazy(
        f"{_PACKAGE}.profile:profile", "Show bytes, registers and occupancy; measure on a GPU."
    ),
    "verify": Lazy(
        f"{_PACKAGE}.verify:verify",
        "Check saved kernels: unchanged, and still passed by the referee?",
    ),
    "models": Lazy(
        f"{_PACKAGE}.models:models", "The smiths: list, show, pull, import, bundle, verify, remove."
    ),
    "convert": Lazy(
        f"{_PACKAGE}.convert:convert", "Merge an adapter into its base and write a proven GGUF."
    ),
    "selftest": Lazy(
        f"{_PACKAGE}.selftest:selftest", "Test the referee on kernels whose verdict is known."
    ),
    "doctor": Lazy(
        f"{_PACKAGE}.doctor:doctor",
        "Show which parts work on this machine, and how to mend the rest.",
    ),
    "path": Lazy(f"{_PACKAGE}.path:path", "Show where kmint keeps things."),
    "config": Lazy(f"{_PACKAGE}.config:config", "Show or check the settings."),
    "completion": Lazy(f"{_PACKAGE}.completion:completion", "Print the shell completion script."),
}

# Errors of a file system about a path from the user, where no command handled the error.
_UNUSABLE = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES)
_SHOWN = 120

EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<4} {code.meaning}" for code in ExitCode
)


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
        from kmint_tui import leftovers
        from kmint_tui.app import run

        leftovers.begin()
        context.exit(run(offline=state.is_offline))
    state.err.note(context.get_help())
    context.exit(ExitCode.USAGE)


def command() -> NoReturn:
    """The installed `kmint`: run the command line of this process and end the process."""
    leave(main())


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing escapes as a traceback unless
    `--debug` is given.
    """
    prepare()
    paths.settle()
    state = State()
    try:
        with orderly():
            result = kmint.main(arguments, prog_name="kmint", standalone_mode=False, obj=state)
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except SystemExit:
        # With standalone_mode off click raises this only when the reader of the help, or of the
        # version, has gone away.
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
                # Python's own buffer may still hold text. Python would try to write it at the end
                # and change the exit code.
                drop(sys.stdout)
            state.err.error(storage_error(Path(error.filename or "stdout"), error))
            return ExitCode.STORAGE
        if isinstance(error, OSError) and error.errno in _UNUSABLE and error.filename is not None:
            shown = str(error.filename)[:_SHOWN]
            state.err.error(
                UsageError(f"{shown} cannot be used: {error.strerror}", fix="check the path")
            )
            return ExitCode.USAGE
        state.err.internal(error, debug=state.debug)
        return ExitCode.INTERNAL


def _usage(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "kmint"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return UsageError("a command is missing", fix=f"run `{command} --help`")
    if context is not None and (missing := _missing(error, context)) is not None:
        return missing
    message = " ".join(error.format_message().split())
    quotes = (
        "put words that belong together in quotes, or "
        if "unexpected extra argument" in message
        else ""
    )
    return UsageError(_lower(message), fix=f"{quotes}run `{command} --help`")


def _missing(error: click.ClickException, context: click.Context) -> UsageError | None:
    """The error that names a missing argument or value and says what it is; None for every other
    error.
    """
    if isinstance(error, click.MissingParameter):
        param, name, needs = error.param, "", f"`{context.command_path}` needs"
    elif isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message:
        param = next(
            (one for one in context.command.get_params(context) if error.option_name in one.opts),
            None,
        )
        name, needs = error.option_name, f"{error.option_name} needs a value:"
    else:
        return None
    if param is None or not param.help:
        return None
    metavar = param.make_metavar(context)
    if isinstance(param, click.Option):
        metavar = f"{name or max(param.opts, key=len)} {metavar}"
    return UsageError(
        f"{needs} {metavar}", fix=f"{metavar}: {_lower(param.help.removesuffix('.'))}"
    )


def _lower(text: str) -> str:
    """The text with a small first letter, unless it begins with a name in capitals."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


if __name__ == "__main__":
    sys.exit(main())
