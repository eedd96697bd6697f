"""Help made from the bindings that are live on the screen beneath, so that it cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static


class Help(ModalScreen[None]):
    """Shows every binding by group, with its key, what it does and the id under which it can be rebound."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q", "dismiss", "Close", id="help.close", tooltip="Close the help"),
    ]

    def __init__(self, bindings: Mapping[str, ActiveBinding], keys_file: str) -> None:
        super().__init__()
        self._live, self._keys_file = bindings, keys_file

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide"):
            yield Label("Keys on this screen", classes="title")
            for group, lines in self._groups().items():
                yield Static(f"[b]{group}[/b]\n" + "\n".join(lines), classes="group")
            yield Static(f'Rebind a key by its id in {self._keys_file}: [b]\\[keys][/b] "mint.start" = "f6"', classes="group")

    def _groups(self) -> dict[str, list[str]]:
        merged: dict[tuple[str, str, str, str], list[str]] = {}
        for key, active in self._live.items():
            binding = active.binding
            if binding.system or not (binding.tooltip or binding.description):
                continue
            group = binding.group.description if binding.group else "On what is focused"
            merged.setdefault((group, binding.tooltip or binding.description, binding.id or "", binding.action), []).append(
                self.app.get_key_display(binding.with_key(key))
            )
        groups: dict[str, list[str]] = {}
        for (group, text, identity, _), keys in sorted(merged.items(), key=lambda item: item[0][0]):
            shown = " ".join(dict.fromkeys(keys)).replace("[", "\\[")
            groups.setdefault(group, []).append(f"  [$accent]{shown:<14}[/] {text}  [$text-muted]{identity}[/]")
        return groups
