"""The terminal application: modes, keys, themes, and the state that the screens share."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import Worker, WorkerState

from kmint_tui import paths
from kmint_tui.core import command_line, facts
from kmint_tui.core.engine import Engine
from kmint_tui.core.exit_codes import ExitCode
from kmint_tui.core.facts import NO_GPU, Facts
from kmint_tui.core.jobs import Jobs
from kmint_tui.core.pulling import PULLING
from kmint_tui.core.run import MintRun, failure_of
from kmint_tui.errors import ConfigError, EnvironmentUnfit
from kmint_tui.history.reading import read_history
from kmint_tui.screens import preferences
from kmint_tui.screens.base import KmintScreen
from kmint_tui.screens.messages import FactsFound, JobsChanged, answer
from kmint_tui.screens.palette import Commands
from kmint_tui.widgets.keyboard import read_anything
from kmint_tui.widgets.safe_text import SafeText
from kmint_tui.widgets.screen_bars import MODE_TITLES
from kmint_tui.widgets.themes import THEMES
from referee.reference.asked import Asked

GO = Binding.Group("Screens", compact=True)
GENERAL = Binding.Group("General")
_SAFE_TEXT = SafeText()
WATCH_SECONDS = 5.0
"""Seconds between two looks at the free memory and the other users of a GPU."""


def _screen(mode: str) -> Callable[[], Screen[Any]]:
    """The screen of a mode, imported when it is first shown."""

    def make() -> Screen[Any]:
        screen: Screen[Any] = getattr(
            import_module(f"kmint_tui.screens.{mode}"), f"{mode.title()}Screen"
        )()
        return screen

    return make


class KmintApp(App[int], inherit_bindings=False):
    """One engine shared by all screens.

    `run_now` is the session under way; `facts` holds the known facts of the machine.
    """

    TITLE = "kmint"
    CSS_PATH = "app.tcss"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        mode: _screen(mode) for mode, _ in MODE_TITLES
    }
    DEFAULT_MODE = "mint"
    COMMANDS = {Commands}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide"), (180, "-very-wide")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"show_mode('{mode}')", title, show=False, id=f"go.{mode}", tooltip=f"Go to {title}", group=GO)
            for number, (mode, title) in enumerate(MODE_TITLES, start=1)
        ),
        Binding("question_mark,f1", "help", "Help", id="app.help", tooltip="Show all keys of this screen", key_display="?", group=GENERAL),
        Binding("ctrl+p", "command_palette", "Palette", id="app.palette", tooltip="Search everything that can be done", group=GENERAL),
        Binding("ctrl+t", "next_theme", "Theme", show=False, id="app.theme", tooltip="Change the colours", group=GENERAL),
        Binding("ctrl+d", "density", "Density", show=False, id="app.density", tooltip="Comfortable or compact", group=GENERAL),
        Binding("ctrl+o", "jump", "Jump", show=False, id="app.jump", tooltip="Put a letter on everything that can be focused",
                group=GENERAL),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, id="app.suspend", tooltip="Back to the shell for a while; `fg` returns",
                group=GENERAL),
        Binding("q", "leave", "Quit", id="app.quit", tooltip="Quit; asks while something is under way", group=GENERAL),
        Binding("ctrl+q", "leave", "Quit", show=False, priority=True, id="app.quit_now", tooltip="Quit; asks while something is under way",
                group=GENERAL),
    ]  # fmt: skip

    def __init__(self, *, offline: bool = False) -> None:
        no_color = os.environ.get("NO_COLOR")
        super().__init__()
        if no_color is not None:
            # Textual takes the variable away; the smith and the referee should still see it.
            os.environ["NO_COLOR"] = no_color
        self.engine = Engine()
        self.offline = offline
        self.facts: Facts | None = None
        self.run_now: MintRun | None = None
        self.doing = ""
        self._watch: Timer | None = None
        self.jobs = Jobs(lambda: self.post_message(JobsChanged()))
        self.mode_before = "mint"
        self._trouble: ConfigError | None = None
        self._choose_looks()

    @property
    def holder(self) -> str:
        """The work of kmint that is under way; empty when there is none."""
        if self.run_now is not None:
            return self.doing or "starting"
        return next(iter(self.jobs.titles), "")

    @property
    def connecting(self) -> str | None:
        """The work under way that may use the network; None while nothing may connect."""
        return next((one for one in self.jobs.titles if one.startswith(PULLING)), None)

    @property
    def offline_reason(self) -> str | None:
        """The reason that forbids the network, or None."""
        return facts.offline_reason(flag=self.offline)

    def get_line_filters(self) -> list[LineFilter]:
        return [*super().get_line_filters(), _SAFE_TEXT]

    def get_driver_class(self) -> type[Driver]:
        return read_anything(super().get_driver_class())

    def on_mount(self) -> None:
        self._end_by_signal()
        self.look_at_machine()
        if self._trouble is not None:
            self._tell(self._trouble)
        if self._keys:
            self._look_for_unknown_keys()

    @work(thread=True, group="keys", exit_on_error=False)
    def _look_for_unknown_keys(self) -> None:
        from kmint_tui.screens.key_ids import unknown_keys

        unknown = unknown_keys(self._keys, KmintApp)
        if unknown:
            self.call_from_thread(
                self._tell, ConfigError(f"{preferences.file()}: {'; '.join(unknown)}")
            )

    def _end_by_signal(self) -> None:
        for name in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(name, self._leave_at_once, name)

    def _leave_at_once(self, name: signal.Signals) -> None:
        from kmint_tui.screens.leave import Leave

        if not any(isinstance(screen, Leave) and not screen.asking for screen in self.screen_stack):
            self.push_screen(Leave(ask=False, code=128 + name))

    @work(thread=True, exclusive=True, group="facts", exit_on_error=False)
    def look_at_machine(self) -> None:
        """Gather the facts anew."""
        answer(self, FactsFound(facts.collect(self.engine.smith_ready, offline=self.offline)))

    @on(FactsFound)
    def _facts_found(self, message: FactsFound) -> None:
        self.facts = message.facts
        self.show_facts()
        if self._watch is None and message.facts.gpu != NO_GPU:
            self._watch = self.set_interval(WATCH_SECONDS, self.look_at_machine)

    @on(JobsChanged)
    def _jobs_changed(self) -> None:
        self.show_facts()

    def show_facts(self) -> None:
        """Have the present screen show the facts."""
        for screen in self.screen_stack:
            if isinstance(screen, KmintScreen) and screen.is_mounted:
                screen.show_facts()

    @on(Worker.StateChanged)
    def _worker_changed(self, event: Worker.StateChanged) -> None:
        error = event.worker.error
        if event.state == WorkerState.ERROR and isinstance(error, Exception):
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        failure = failure_of(error)
        self.notify(
            f"{failure.message}\n{failure.fix}".strip(),
            title=failure.title,
            severity="error",
            timeout=12,
            markup=False,
        )

    def refuse_to_disturb(self, what: str) -> None:
        """Raise EnvironmentUnfit while something measures times, which `what` would disturb."""
        under_way = "a session is under way" if self.run_now is not None else self.jobs.timing
        if under_way is not None:
            raise EnvironmentUnfit(
                f"{under_way}; {what} would disturb its times",
                fix="wait for it, or cancel it with x",
                title="not now",
            )

    def open_draft(self, identity: str) -> None:
        """Show a draft of the history on its screen."""
        from kmint_tui.screens.draft import DraftScreen

        if self.current_mode != "draft":
            self.mode_before = self.current_mode
        self.switch_mode("draft")
        screen = self.screen
        if isinstance(screen, DraftScreen):
            screen.show(identity)

    def open_session(self, number: int) -> None:
        """Show a session of the history, with its drafts."""
        from kmint_tui.screens.history import HistoryScreen

        self.switch_mode("history")
        if isinstance(screen := self.screen, HistoryScreen):
            screen.go_to(number)

    def save_draft(self, identity: str, reference: Asked | None = None) -> None:
        """Ask for a folder and save a draft into it."""
        from kmint_tui.screens.save import Saving

        def save(folder: Path) -> tuple[str, ...]:
            from kmint_tui.core.save import save_draft, told

            with read_history(paths.history_file()) as history:
                saved = save_draft(
                    history, self.engine.referee(), identity, folder, reference=reference
                )
            return told(saved, reference)

        self.push_screen(
            Saving(
                f"draft {identity}",
                save,
                lambda folder: command_line.save(identity, folder, reference),
            )
        )

    def claim_crown(self, identity: str) -> None:
        """Let a draft claim its crown, on the Crowns screen."""
        from kmint_tui.screens.crowns import CrownsScreen

        self.switch_mode("crowns")
        if isinstance(screen := self.screen, CrownsScreen):
            screen.claim(identity)

    def open_grid(self, identity: str) -> None:
        """Show the grid of a draft, or offer to measure it."""
        from kmint_tui.screens.grid import GridScreen

        self.switch_mode("grid")
        if isinstance(screen := self.screen, GridScreen):
            screen.open_draft(identity)

    def action_show_mode(self, mode: str) -> None:
        if not any(not isinstance(screen, KmintScreen) for screen in self.screen_stack[1:]):
            self.switch_mode(mode)

    def action_help(self) -> None:
        from kmint_tui.screens.help import Help

        if isinstance(self.screen, KmintScreen):
            self.push_screen(Help(self.screen.active_bindings, str(preferences.file())))

    def action_jump(self) -> None:
        from kmint_tui.screens.jump import Jump

        if isinstance(self.screen, KmintScreen):
            screen = self.screen
            self.push_screen(
                Jump(screen),
                lambda widget: screen.set_focus(widget) if widget is not None else None,
            )

    def action_use_theme(self, theme: str) -> None:
        self.theme = theme
        self._remember()

    def action_next_theme(self) -> None:
        names = preferences.THEMES
        self.action_use_theme(
            names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]
        )

    def action_density(self) -> None:
        self.toggle_class("-compact")
        self._remember()

    async def action_leave(self) -> None:
        """Quit; while work is under way, ask first."""
        from kmint_tui.screens.leave import Leave

        if not isinstance(self.screen, Leave):
            self.push_screen(Leave(ask=self.run_now is not None or bool(self.jobs.weighty)))

    def _choose_looks(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        try:
            chosen = preferences.load()
        except ConfigError as error:
            chosen, self._trouble = preferences.Preferences(), error
        self.theme = chosen.theme
        self.set_class(chosen.density == "compact", "-compact")
        self._keys = chosen.keys
        self.set_keymap(chosen.keys)

    def _remember(self) -> None:
        preferences.remember(self.theme, "compact" if self.has_class("-compact") else "comfortable")


def run(*, offline: bool = False) -> int:
    """Open the application on this terminal and return the exit code."""
    with _quiet_descriptor():
        app = KmintApp(offline=offline)
        app.run()
        # Textual ends with 1 after an uncaught exception.
        return ExitCode.INTERNAL if app.return_code in (None, 1) else int(app.return_code or 0)


class _quiet_descriptor:
    """Gives the terminal to the application alone: a log receives the text that C code writes to
    file descriptor 2 meanwhile.
    """

    def __enter__(self) -> None:
        log = paths.private_dir(paths.log_dir()) / f"tui-{os.getpid()}.log"
        self._terminal = os.dup(2)
        self._before = sys.__stderr__, sys.stderr
        # Textual draws on __stderr__, and prints its errors on stderr when it is over.
        sys.stderr = vars(sys)["__stderr__"] = self._writer = os.fdopen(
            os.dup(2), "w", encoding="utf-8", errors="backslashreplace"
        )
        self._log = log
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def __exit__(self, *error: object) -> None:
        os.dup2(self._terminal, 2)
        os.close(self._terminal)
        vars(sys)["__stderr__"], sys.stderr = self._before
        with suppress(OSError):  # the terminal may be gone
            self._writer.close()
        if self._log.stat().st_size == 0:
            self._log.unlink()
