"""Help made from the bindings that are live on the screen beneath, so that it cannot be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, Static


class Help(ModalScreen[None]):
    """Shows every binding by group, with its key, what it does and the id under which it can be
    rebound.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,question_mark,f1,q",
            "dismiss",
            "Close",
            id="help.close",
            tooltip="Close the help",
        ),
    ]

    def __init__(self, bindings: Mapping[str, ActiveBinding], keys_file: str) -> None:
        super().__init__()
        self._live, self._keys_file = bindings, keys_file

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide"):
            yield Label("Keys on this screen", classes="title")
            for group, lines in self._groups().items():
                yield Static(
                    Content("\n").join([Content.styled(group, "b"), *lines]), classes="group"
                )
            rebind = (
                f"Rebind a key by its id in {self._keys_file}: ",
                ("[keys]", "b"),
                ' "mint.start" = "f6"',
            )
            yield Static(Content.assemble(*rebind), classes="group")

    def _groups(self) -> dict[str, list[Content]]:
        merged: dict[tuple[str, str, str, str], list[str]] = {}
        for key, active in self._live.items():
            binding = active.binding
            if binding.system or not (binding.tooltip or binding.description):
                continue
            group = binding.group.description if binding.group else "On the focused part"
            merged.setdefault(
                (group, binding.tooltip or binding.description, binding.id or "", binding.action),
                [],
            ).append(self.app.get_key_display(binding.with_key(key)))
        groups: dict[str, list[Content]] = {}
        for (group, text, identity, _), keys in sorted(merged.items(), key=lambda item: item[0][0]):
            shown = " ".join(dict.fromkeys(keys))
            line = Content.assemble(
                "  ", (f"{shown:<14}", "$accent"), f" {text}  ", (identity, "$text-muted")
            )
            groups.setdefault(group, []).append(line)
        return groups
