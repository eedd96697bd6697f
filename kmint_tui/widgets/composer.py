"""Says what is to be minted: a block put together, an operation of the catalogue, or an own reference file; and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.validation import Integer, Validator
from textual.widgets import Button, ContentSwitcher, Input, Label, Select, Static

from kmint_tui.cli.planning import Wishes
from kmint_tui.errors import UsageError
from kmint_tui.minting.request import Until
from kmint_tui.widgets.op_list import OpList
from kmint_tui.workbench.block import NORMS, Block
from referee.ops import UnknownOp, catalogue, get
from referee.ops.activations import ACTIVATIONS
from referee.ops.spec import Op

MOST_DRAFTS, MOST_REPAIRS = 64, 8
UNTIL = (("judge every draft", "best"), ("stop at the first win", "first"))
TUNE = (("no tuning", "no"), ("tune the best", "yes"))
WAYS = (("Block", "block"), ("Operation", "list"), ("Own file", "file"))
RESIDUAL = (("no residual", "no"), ("+ residual", "yes"))


class Composer(Vertical):
    """Posts `Changed` whenever what is asked for changes, and `Started` for its button."""

    @dataclass
    class Changed(Message):
        """Something else is asked for."""

    @dataclass
    class Started(Message):
        """The button was pressed."""

    def compose(self) -> ComposeResult:
        acts = [(act.title, act.name) for act in ACTIVATIONS.values()]
        with Horizontal(classes="line"):
            yield Select(WAYS, value="block", allow_blank=False, compact=True, id="way", tooltip="How to say what to mint")
            with ContentSwitcher(initial="block", id="ways"):
                with Horizontal(id="block"):
                    yield Select(NORMS, value="rmsnorm", allow_blank=False, compact=True, id="norm", tooltip="The normalisation")
                    yield Select(RESIDUAL, value="no", allow_blank=False, compact=True, id="residual",
                                 tooltip="Add a residual before the normalisation?")  # fmt: skip
                    yield Select(acts, prompt="no activation", compact=True, id="first", tooltip="The activation after it")
                    yield Select(acts, prompt="no second", compact=True, id="second", tooltip="A second activation on top")
                with Horizontal(id="list"):
                    yield Input(placeholder="name or words, such as softmax", compact=True, id="op", tooltip="Search the operations")
                with Horizontal(id="file"):
                    yield Input(placeholder="reference.py:function", compact=True, id="reference", tooltip="Your own PyTorch reference")
        yield OpList(id="matches")
        with Horizontal(classes="line"):
            yield Label("model", classes="field")
            yield Select([("best that fits", "")], value="", allow_blank=False, compact=True, id="model", tooltip="The smith")
            yield Label("drafts", classes="field")
            yield Input("8", compact=True, id="drafts", type="integer", validators=_number(1, MOST_DRAFTS), tooltip="How many drafts")
            yield Label("seed", classes="field")
            yield Input(placeholder="any", compact=True, id="seed", type="integer", validators=_number(0, 2**63 - 1), valid_empty=True,
                        tooltip="Repeat a session by its seed")  # fmt: skip
            yield Label("target", classes="field")
            yield Input(placeholder="this GPU", compact=True, id="target", tooltip="GPU to compile for, such as sm_90")
            yield Button("Mint", variant="primary", compact=True, id="start", tooltip="Draft and judge (m)")
        with Horizontal(classes="line more"):
            yield Select(UNTIL, value="best", allow_blank=False, compact=True, id="until", tooltip="When to stop drafting")
            yield Label("repairs", classes="field")
            yield Input("0", compact=True, id="repair", type="integer", validators=_number(0, MOST_REPAIRS),
                        tooltip="How often rejected drafts go back with the referee's reason")  # fmt: skip
            yield Select(TUNE, value="no", allow_blank=False, compact=True, id="tune",
                         tooltip="Sweep block sizes, warps and stages of the best kernel; needs a GPU")  # fmt: skip
        yield Static("", id="meaning", markup=False)

    def on_mount(self) -> None:
        self._explain()

    @property
    def op(self) -> Op | None:
        """The operation asked for; None for an own file or a name that is none."""
        try:
            if self._way == "block":
                return self._block.op
            return get(self._text("op")) if self._way == "list" else None
        except UnknownOp:
            return None

    def wishes(self) -> Wishes:
        """What is asked for, as the command line would put it. Raises UsageError."""
        for field, limits in (("drafts", f"1 to {MOST_DRAFTS}"), ("seed", "0 to 2^63 - 1"), ("repair", f"0 to {MOST_REPAIRS}")):
            if not self.query_one(f"#{field}", Input).is_valid:
                raise UsageError(f"{field} must be a whole number within its limits", fix=f"{field}: {limits}")
        op, reference = None, None
        if self._way == "file":
            reference = self._text("reference")
            if not reference:
                raise UsageError("no reference file is named", fix="for example reference.py:fused_norm")
        elif (found := self.op) is not None:
            op = found.name
        else:
            raise UsageError(f"no operation is called {self._text('op')!r}", fix="choose one of the list")
        seed = self._text("seed")
        return Wishes(
            op=op,
            reference=reference,
            model=str(self.query_one("#model", Select).value) or None,
            drafts=int(self._text("drafts") or 8),
            seed=int(seed) if seed else None,
            temperature=None,
            top_p=None,
            max_tokens=None,
            until=cast("Until", str(self.query_one("#until", Select).value)),
            target=self._text("target") or None,
            dialect=None,
            repair=int(self._text("repair") or 0),
            tune=self.query_one("#tune", Select).value == "yes",
        )

    @property
    def reference(self) -> str | None:
        """The own file that is named; None where none is."""
        return self._text("reference") or None if self._way == "file" else None

    def offer_models(self, models: list[tuple[str, str]], chosen: str) -> None:
        """Offer these smiths, (shown, id), after "best that fits"."""
        select: Select[str] = self.query_one("#model", Select)
        before = str(select.value)
        select.set_options([("best that fits", ""), *models])
        known = {identity for _, identity in models} | {""}
        select.value = before if before in known and before else chosen if chosen in known else ""

    def ask_for(self, op: Op, drafts: int | None = None) -> None:
        """Set the form to this operation."""
        self.query_one("#way", Select).value = "list"
        self.query_one("#op", Input).value = op.name
        if drafts is not None:
            self.query_one("#drafts", Input).value = str(drafts)

    @property
    def _way(self) -> str:
        return str(self.query_one("#way", Select).value)

    @property
    def _block(self) -> Block:
        first, second = (self._choice(name) for name in ("first", "second"))
        norm = cast("Literal['rmsnorm', 'layernorm']", str(self.query_one("#norm", Select).value))
        return Block(norm, self.query_one("#residual", Select).value == "yes", first or second, second if first else None)

    def _choice(self, name: str) -> str | None:
        value = self.query_one(f"#{name}", Select).value
        return value if isinstance(value, str) else None

    def _text(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value.strip()

    @on(Select.Changed)
    @on(Input.Changed)
    def _changed(self, event: Message) -> None:
        event.stop()
        if self.is_mounted:
            self._explain()
            self.post_message(self.Changed())

    @on(Button.Pressed, "#start")
    @on(Input.Submitted)
    def _start(self, event: Message) -> None:
        event.stop()
        matches = self.query_one(OpList)
        if isinstance(event, Input.Submitted) and event.input.id == "op" and self.op is None and matches.display:
            matches.choose_first()
        else:
            self.post_message(self.Started())

    @on(OpList.OptionSelected)
    def _matched(self, event: OpList.OptionSelected) -> None:
        event.stop()
        self.query_one("#op", Input).value = str(event.option.id)
        self.query_one("#op", Input).focus()

    def _explain(self) -> None:
        way, op = self._way, self.op
        self.query_one("#ways", ContentSwitcher).current = way
        wanted = self._text("op")
        matches = self.query_one(OpList)
        matches.display = way == "list" and op is None
        if matches.display:
            matches.show(catalogue(), wanted)
        if way == "file":
            text = "A Python file with a PyTorch function and get_inputs(), or a KernelBench-style Model."
        elif op is not None:
            text = f"{op.name}: {op.formula}"
        else:
            text = f"{matches.option_count} operations match; two stacked activations work too, such as rmsnorm_silu_tanh"
        self.query_one("#meaning", Static).update(text)


def _number(low: int, high: int) -> list[Validator]:
    return [Integer(low, high)]
