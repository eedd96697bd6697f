"""Drives the application through a real terminal (tmux): it sends keys and captures the screen.

    python bench/tui_walk.py [--folder DIR] [--size 80x24] [--op-drafts 8] [--show]

The main path comes first. The script composes rmsnorm + residual + silu, mints, opens the best
draft, saves it into a folder, finds it in the history and quits. Then it presses every key that the
help of every screen lists, and the application must still answer. It needs tmux and a model; the
embedded one is enough. It leaves no tmux server and no process behind. Exit code 1 where a
condition did not hold.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCREENS = ("Mint", "Draft", "History", "Crowns", "Grid", "Models", "Doctor")
KEY_NAMES = {
    "enter": "Enter", "⏎": "Enter", "esc": "Escape", "↑": "Up", "↓": "Down", "←": "Left", "→": "Right", "pgup": "PageUp",
    "pgdn": "PageDown", "home": "Home", "end": "End", "space": "Space", "tab": "Tab", "shift+tab": "BTab", "backspace": "BSpace",
}  # fmt: skip
SUSPEND = "^z"
"""Stops the process until the shell continues it; there is no shell here."""


class WalkFailed(Exception):
    """The screen did not show what it should."""


class Terminal:
    """A separate tmux server with kmint in its one window."""

    def __init__(self, folder: Path, size: tuple[int, int], show: bool) -> None:
        # A server that was killed may still hold its socket for a moment.
        self._socket = str(folder / f"tmux-{time.monotonic_ns()}.sock")
        self._show = show
        width, height = size
        settings = {
            "KMINT_HOME": str(folder / "home"),
            "KMINT_OFFLINE": "1",
            "COLORTERM": "truecolor",
        }
        variables = [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]
        # The program's last output and its exit code stay on the screen.
        command = f"cd {folder} && {sys.executable} -m kmint_tui; echo exit-code=$?; sleep 600"
        place = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        variables += [word for name, value in place.items() for word in ("-e", f"{name}={value}")]
        self._tmux(
            "new-session",
            "-d",
            "-x",
            str(width),
            "-y",
            str(height),
            *variables,
            "sh",
            "-c",
            command,
        )

    def close(self) -> None:
        """End the server and all that runs in it."""
        subprocess.run(
            ["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False
        )

    def screen(self) -> str:
        """The text on the screen."""
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Send keys by tmux's names, with time between them as a person has it."""
        for key in keys:
            self._tmux("send-keys", key) if len(key) > 1 else self._tmux("send-keys", "-l", key)
            # A terminal takes a key too soon after an escape for a key with alt.
            time.sleep(0.3 if key == "Escape" else 0.05)

    def write(self, text: str) -> None:
        """Send a text."""
        self._tmux("send-keys", "-l", text)

    def until(self, *texts: str, seconds: float = 60.0) -> str:
        """Wait until the screen shows all of these (regular expressions). Raises WalkFailed."""
        end = time.monotonic() + seconds
        while True:
            shown = self.screen()
            if all(re.search(text, shown) for text in texts):
                if self._show:
                    print(shown)
                return shown
            if time.monotonic() > end:
                raise WalkFailed(f"not on the screen within {seconds:g} s: {texts}\n{shown}")
            time.sleep(0.1)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], capture_output=True, text=True, check=True
        )
        return done.stdout


def main_path(terminal: Terminal, folder: Path, drafts: int) -> None:
    """The walk from an empty home to a saved kernel that the history knows."""
    terminal.until("1 Mint", "RMSNorm", "Palette")
    print("open: first screen is there")
    terminal.press(
        "Escape", "e"
    )  # to the form: the way of saying it, then norm, residual, first activation
    terminal.press("Tab", "Tab", "Enter", "Down", "Enter")
    terminal.until("add_rmsnorm")
    terminal.press("Tab", "Enter")
    terminal.until("SiLU")
    terminal.press("s", "i", "l", "u")
    for _ in range(30):
        if re.search(r"(?m)^.*add_rmsnorm_silu: ", terminal.screen()):
            break
        terminal.press("Enter")
        time.sleep(0.3)
        if re.search(r"(?m)^.*add_rmsnorm_silu: ", terminal.screen()):
            break
        terminal.press("Enter", "Down")
    terminal.until("add_rmsnorm_silu: ")
    print("compose: add_rmsnorm_silu")
    terminal.press("F5")
    terminal.until(r"smith.* at work", seconds=120)
    print("mint: the smith writes")
    shown = terminal.until(rf"{drafts}/{drafts} judged", "done in", seconds=600)
    passed = re.search(r"(\d+) correct", shown)
    print(f"mint: {passed.group(0) if passed else shown}")
    if not passed or passed.group(1) == "0":
        raise WalkFailed("no draft passed; nothing to save")
    terminal.press("b", "Enter")
    terminal.until("draft 1\\.", "add_rmsnorm_silu  (correct|win|tie|loss)")
    print("open the best: its screen is there")
    terminal.press("s")
    terminal.until("Folder to save into")
    terminal.write(str(folder / "kernels"))
    terminal.press("Enter")
    terminal.until("saved draft 1\\.", seconds=120)
    files = sorted(path.name for path in (folder / "kernels").iterdir())
    print(f"save: {', '.join(files)}")
    if {"add_rmsnorm_silu.py", "test_add_rmsnorm_silu.py"} - set(files):
        raise WalkFailed(f"files are missing: {files}")
    terminal.press("3")
    terminal.until("session 1: 8 drafts" if drafts == 8 else "session 1", "add_rmsnorm_silu")
    terminal.press("/")
    terminal.write("silu")
    terminal.press("Enter")
    terminal.until("add_rmsnorm_silu")
    print("find it in the history: there")


def help_keys(terminal: Terminal) -> list[str]:
    """Every key that the help on this screen lists, by tmux's names."""
    terminal.press("F1")
    found: list[str] = []
    shown = terminal.until("Keys on this screen")
    while True:
        for line in shown.splitlines():
            # A key or two, padded, then what it does; a long line goes on below, with less before
            # it.
            match = re.search(r"│ {3,4}(\S(?:.{0,12}\S)?) {2,}[A-Z]", line)
            found += match.group(1).split() if match else []
        terminal.press("PageDown")
        time.sleep(0.3)
        after = terminal.screen()
        if after == shown:
            break
        shown = after
    terminal.press("Escape")
    terminal.until("Palette")
    # A terminal has no super key.
    names = dict.fromkeys(key for key in found if key != SUSPEND and not key.startswith("super"))
    return [_tmux_name(key) for key in names]


def _tmux_name(key: str) -> str:
    control, plain = ("C-", key[1:]) if len(key) > 1 and key.startswith("^") else ("", key)
    return control + KEY_NAMES.get(plain, plain)


def every_key(terminal: Terminal, screens: tuple[str, ...]) -> int:
    """Press every key of every screen's help; the application must answer after each. Returns how
    many were pressed.
    """
    pressed = 0
    for number, title in enumerate(screens, start=1):
        go(terminal, number)
        keys = [key for key in help_keys(terminal) if key not in ("q", "C-q")]
        if len(keys) < 10:
            raise WalkFailed(f"the help of {title} lists only {keys}")
        for key in keys:
            go(terminal, number)
            terminal.press(key.replace("f1", "F1").replace("f5", "F5").replace("f2", "F2"))
            time.sleep(0.15)
            if "exit-code=" in terminal.screen():
                raise WalkFailed(f"{key} on {title} ended the application\n{terminal.screen()}")
            pressed += 1
        print(f"keys of {title}: {' '.join(keys)}")
    return pressed


def go(terminal: Terminal, number: int) -> None:
    """To the screen of that number, from wherever a key has led."""
    for _ in range(6):
        terminal.press("Escape", "Escape", "x", "Escape")
        terminal.press(str(number))
        time.sleep(0.3)
        shown = terminal.screen()
        if re.search(rf"{number} {SCREENS[number - 1]}", shown) and "Palette" in shown:
            return
    raise WalkFailed(f"no way to screen {number}\n{terminal.screen()}")


def leave(terminal: Terminal) -> None:
    """Quit, and see that the shell is back."""
    terminal.press("C-q")
    time.sleep(1.0)
    if "Under way" in terminal.screen():
        terminal.press("y")
    shown = terminal.until("exit-code=0", seconds=120)
    if "Traceback" in shown:
        raise WalkFailed(shown)
    print("quit: exit code 0, the shell's screen is back")


def main() -> None:
    options = argparse.ArgumentParser(description="Drives the interface through tmux.")
    options.add_argument("--folder", type=Path)
    options.add_argument("--size", default="80x24")
    options.add_argument("--drafts", type=int, default=8)
    options.add_argument("--show", action="store_true", help="print the screens")
    arguments = options.parse_args()
    if shutil.which("tmux") is None:
        raise SystemExit("tmux is not installed")
    width, height = (int(number) for number in arguments.size.split("x"))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        began = time.perf_counter()
        terminal = Terminal(folder, (width, height), arguments.show)
        try:
            main_path(terminal, folder, arguments.drafts)
            leave(terminal)
        except (WalkFailed, subprocess.CalledProcessError) as error:
            raise SystemExit(f"FAILED: {error}") from None
        finally:
            terminal.close()
        second = Terminal(folder, (width, height), arguments.show)
        try:
            second.until("Palette")
            pressed = every_key(second, SCREENS)
            leave(second)
        except (WalkFailed, subprocess.CalledProcessError) as error:
            raise SystemExit(f"FAILED: {error}") from None
        finally:
            second.close()
    print(
        f"all of it held at {arguments.size}: {pressed} keys, {time.perf_counter() - began:.0f} s, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
