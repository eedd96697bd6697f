"""The fields of the composer for shapes and dtype, with the shapes that they name."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Label, Select, Static

from kmint_tui.core.shape import in_words, previewed
from kmint_tui.errors import UsageError
from kmint_tui.widgets.fields import choice
from referee.ops.spec import Op

DTYPES = (("fp16", ""), ("bf16", "bf16"), ("fp32", "fp32"))
"""Choices of `--dtype`: the shown text and the value; an empty value leaves the option out."""


class ShapeFields(Horizontal):
    """Texts as `--shape` takes them, separated by spaces or commas, and one dtype for all."""

    def compose(self) -> ComposeResult:
        yield Label("shapes", classes="field")
        yield Input(
            placeholder="usual, or Mx4096 …",
            compact=True,
            id="shapes",
            tooltip="Shapes to judge and time at, such as 32768x1024 64x4096:bf16; Mx4096 is several numbers of rows",
        )
        yield Label("dtype", classes="field")
        yield choice(DTYPES, "", "dtype", "Dtype of shapes that name none")
        yield Static("", id="shapes-told", markup=False)

    @property
    def asked(self) -> tuple[tuple[str, ...], str | None]:
        """The values of `--shape` and `--dtype`; neither while the fields are of no use."""
        if self.has_class("-unused"):
            return (), None
        texts = self.query_one("#shapes", Input).value.replace(",", " ").split()
        return tuple(texts), str(self.query_one("#dtype", Select).value) or None

    def tell(self, op: Op | None) -> None:
        """Show the shapes that the fields name for this operation, or why they name none."""
        told = self.query_one("#shapes-told", Static)
        text, refused = "", False
        try:
            text = in_words(previewed(op, *self.asked)) if op is not None else ""
        except UsageError as error:
            text, refused = error.message, True
        told.update(text)
        told.set_class(refused, "-refused")
