"""The bars of every screen: the screens on top; the facts and the keys at the bottom.

A click on a screen's number goes there, and a click on a key does what the key does. Screens that
need a GPU are dim, with a sign, where kernels cannot be timed. They still open, because they also
show crowns and grids that were measured on another machine. The facts are model and offload, GPU
and free memory, the GPU's user, and the network.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Footer, Label, Static
from textual.widgets._footer import FooterKey

from kmint_tui.core.facts import Facts

MODE_TITLES = (
    ("mint", "Mint"),
    ("draft", "Draft"),
    ("history", "History"),
    ("crowns", "Crowns"),
    ("grid", "Grid"),
    ("book", "Book"),
    ("models", "Models"),
    ("doctor", "Doctor"),
)
TIMED = ("crowns", "grid")
"""Modes whose main action times kernels on a GPU."""
UNTIMED_SIGN = "⊘"
UNTIMED = "kmint has no GPU, so it times nothing here. Earlier measurements can be read."


class ModeBar(Horizontal):
    """`current` is the mode of the screen that shows the bar."""

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        yield Label("kmint", classes="brand")
        for mode, _ in MODE_TITLES:
            label = Label("", id=f"mode-{mode}", classes="mode")
            label.set_class(mode == self._current, "-current")
            yield label

    def on_mount(self) -> None:
        self.mark(can_time=True)

    def mark(self, *, can_time: bool) -> None:
        """Mark the screens that cannot do their main action here."""
        for number, (mode, title) in enumerate(MODE_TITLES, start=1):
            label = self.query_one(f"#mode-{mode}", Label)
            unusable = mode in TIMED and not can_time
            sign = UNTIMED_SIGN if unusable else ""
            label.update(f"[@click=app.show_mode('{mode}')]{number} {title}{sign}[/]")
            label.set_class(unusable, "-unusable")
            label.tooltip = UNTIMED if unusable else None


class FactsBar(Static):
    """Empty until the facts are known."""

    def show(self, facts: Facts | None, holder: str, connecting: str | None = None) -> None:
        """Show these facts.

        `holder` names the part of kmint that works now, empty for none. `connecting` names the work
        that may use the network now; only then does the bar say ONLINE.
        """
        if facts is None:
            self.update("looking at this machine …")
            return
        parts = [Content(f"{facts.model}, {facts.offload}"), _device_facts(facts, holder)]
        if facts.offline:
            parts.insert(0, Content.assemble(("OFFLINE", "$warning"), f" ({facts.offline})"))
        elif connecting is not None:
            parts.insert(0, Content.assemble(("ONLINE", "$warning"), f": {connecting}"))
        # A narrow terminal cuts off the end.
        bar = Content.assemble("  ", ("│", "$text-muted"), " ")
        self.update(bar.join(parts))


def _device_facts(facts: Facts, holder: str) -> Content:
    if not facts.others:
        return Content(f"{facts.gpu}, {holder or 'idle'}")
    held = f"{holder}, " if holder else ""
    return Content.assemble(held, ("GPU busy", "$warning"), f": {facts.others}, {facts.gpu}")


class KeyBar(Footer):
    """Textual's footer, without folding the keys of a group into one label: here the groups are for
    the help.
    """

    def compose(self) -> ComposeResult:
        shown: set[str] = set()
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if not binding.show or binding.group is None or binding.action in shown:
                continue
            shown.add(binding.action)
            yield FooterKey(
                binding.key,
                self.app.get_key_display(binding),
                binding.description,
                binding.action,
                disabled=not active.enabled,
                tooltip=binding.tooltip,
            ).data_bind(compact=Footer.compact)
        self.styles.grid_size_columns = max(1, len(shown))
