"""A form for the kernel to mint: a block, an operation or an own function, with the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Button, ContentSwitcher, Input, Label, Select, Static, TextArea

from kmint_tui.core.block import NORMS, Block
from kmint_tui.core.own_function import Examined, examine, functions_of, keep_pasted
from kmint_tui.core.planning import MintOptions, described_program
from kmint_tui.core.reference import parse_reference
from kmint_tui.core.shape import previewed
from kmint_tui.errors import KmintError, UsageError
from kmint_tui.minting.request import MintRequest, Until
from kmint_tui.paths import expanded
from kmint_tui.widgets.fields import choice, number
from kmint_tui.widgets.shape_fields import ShapeFields
from kmint_tui.widgets.task_lists import FunctionList, OpList
from referee.ops import UnknownOp, get, listed
from referee.ops.grammar import ACTIVATIONS
from referee.ops.spec import Op
from referee.reference.asked import Asked, split_reference

MOST_DRAFTS, MOST_REPAIRS = 64, 8
UNTIL = (("judge every draft", "best"), ("stop at the first win", "first"))
TUNE = (("no tuning", "no"), ("tune the best", "yes"))
WAYS = (("Block", "block"), ("Operation", "list"), ("Own function", "file"), ("Pasted code", "paste"))  # fmt: skip
OWN = ("file", "paste")
EXAMINED_AFTER = 0.5
"""Seconds without a change after which an own function is examined."""
RESIDUAL = (("no residual", "no"), ("+ residual", "yes"))
TEMPLATES = (("with kmint's template", "yes"), ("without template", "no"))


class Composer(Vertical):
    """Posts `Changed` whenever the request changes, and `Started` for its button."""

    @dataclass
    class Changed(Message):
        """The request has changed."""

    @dataclass
    class Started(Message):
        """The button was pressed."""

    @dataclass
    class Known(Message):
        """The own function was examined."""

        asked: Asked
        examined: Examined

    _examined: Asked | None = None
    _soon: Timer | None = None

    def compose(self) -> ComposeResult:
        acts = [(act.title, act.name) for act in ACTIVATIONS.values()]
        with Horizontal(classes="line"):
            yield choice(WAYS, "block", "way", "How to say what to mint")
            with ContentSwitcher(initial="block", id="ways"):
                with Horizontal(id="block"):
                    yield choice(NORMS, "rmsnorm", "norm", "The normalisation")
                    yield choice(
                        RESIDUAL, "no", "residual", "Add a residual before the normalisation?"
                    )
                    yield Select(
                        acts,
                        prompt="no activation",
                        compact=True,
                        id="first",
                        tooltip="The activation after it",
                    )
                    yield Select(
                        acts,
                        prompt="no second",
                        compact=True,
                        id="second",
                        tooltip="A second activation on top",
                    )
                with Horizontal(id="list"):
                    yield Input(
                        placeholder="name or words, such as softmax",
                        compact=True,
                        id="op",
                        tooltip="Search the operations",
                    )
                with Horizontal(id="file"):
                    yield Input(
                        placeholder="reference.py:function",
                        compact=True,
                        id="reference",
                        tooltip="Your own PyTorch function",
                    )
                    yield Input(placeholder="inputs, such as x=bf16[B,4096]", compact=True, id="inputs",
                                tooltip="Shapes and dtypes of its inputs; leave this empty if the file gives them")  # fmt: skip
        yield OpList(id="matches")
        yield TextArea(
            id="pasted", tooltip="Paste a PyTorch function here", show_line_numbers=False
        )
        yield FunctionList(id="functions")
        yield Static("", id="graph", markup=False)
        with Horizontal(classes="line"):
            yield Label("model", classes="field")
            yield choice([("best that fits", "")], "", "model", "The smith")
            yield Label("drafts", classes="field")
            yield Input(
                "8",
                compact=True,
                id="drafts",
                type="integer",
                validators=number(1, MOST_DRAFTS),
                tooltip="How many drafts",
            )
            yield Label("seed", classes="field")
            yield Input(placeholder="any", compact=True, id="seed", type="integer", validators=number(0, 2**63 - 1), valid_empty=True,
                        tooltip="Repeat a session by its seed")  # fmt: skip
            yield Label("target", classes="field")
            yield Input(
                placeholder="this GPU",
                compact=True,
                id="target",
                tooltip="GPU to compile for, such as sm_90",
            )
            yield Button(
                "Mint", variant="primary", compact=True, id="start", tooltip="Draft and judge (m)"
            )
        with Horizontal(classes="line more"):
            yield choice(UNTIL, "best", "until", "When to stop drafting")
            yield Label("repairs", classes="field")
            yield Input("0", compact=True, id="repair", type="integer", validators=number(0, MOST_REPAIRS),
                        tooltip="How often rejected drafts go back with the referee's reason")  # fmt: skip
            yield choice(
                TUNE,
                "no",
                "tune",
                "Try other block sizes, warps and stages for the best kernel; needs a GPU",
            )
            yield choice(
                TEMPLATES,
                "yes",
                "template",
                "Whether kmint also writes one kernel from the function's graph, without the smith",
            )
        yield ShapeFields(classes="line", id="timed-at")
        yield Static("", id="meaning", markup=False)

    def on_mount(self) -> None:
        self._explain()

    @property
    def op(self) -> Op | None:
        """The requested operation; None for an own file or an unknown name."""
        try:
            if self._way == "block":
                return self._block.op
            return get(self._text("op")) if self._way == "list" else None
        except UnknownOp:
            return None

    def wishes(self) -> MintOptions:
        """The request, as the command line would put it. Raises UsageError."""
        shapes, dtype = self.query_one(ShapeFields).asked
        for field, limits in (
            ("drafts", f"1 to {MOST_DRAFTS}"),
            ("seed", "0 to 2^63 - 1"),
            ("repair", f"0 to {MOST_REPAIRS}"),
        ):
            if not self.query_one(f"#{field}", Input).is_valid:
                raise UsageError(
                    f"{field} must be a whole number within its limits", fix=f"{field}: {limits}"
                )
        op, reference = None, self.reference
        if self._way in OWN:
            if reference is None:
                raise UsageError("no function is named", fix="for example reference.py:fused_norm")
        elif (found := self.op) is not None:
            op = found.name
            previewed(found, shapes, dtype)
        else:
            raise UsageError(
                f"no operation is called {self._text('op')!r}", fix="choose one of the list"
            )
        seed = self._text("seed")
        return MintOptions(
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
            template=self.query_one("#template", Select).value == "yes",
            shapes=shapes,
            dtype=dtype,
        )

    @property
    def reference(self) -> Asked | None:
        """The own function that the form names, or None."""
        if self._way not in OWN:
            return None
        inputs = self._text("inputs")
        return parse_reference(self._text("reference") or None, [inputs] if inputs else [])

    def describe(self, request: MintRequest) -> None:
        """Show the graph of the function that the session mints, in words."""
        template = (
            "kmint's template competes" if request.template and request.program else "no template"
        )
        text = f"{request.op.name}: graph of {described_program(request)}; {template}"
        self.query_one("#meaning", Static).update(text)

    def offer_models(self, models: list[tuple[str, str]], chosen: str) -> None:
        """Offer these smiths, (shown, id), after "best that fits"."""
        select: Select[str] = self.query_one("#model", Select)
        before = str(select.value)
        select.set_options(
            [("best that fits", ""), *((Content(shown), identity) for shown, identity in models)]
        )
        known = {identity for _, identity in models} | {""}
        select.value = before if before in known and before else chosen if chosen in known else ""

    def ask_for(self, op: Op, drafts: int | None = None) -> None:
        """Set the form to this operation."""
        self.query_one("#way", Select).value = "list"
        self.query_one("#op", Input).value = op.name
        if drafts is not None:
            self.query_one("#drafts", Input).value = str(drafts)

    def ask_for_own(self) -> None:
        """Set the form to a function of the user's and ask for its file."""
        self.query_one("#way", Select).value = "file"
        self.call_after_refresh(self.query_one("#reference", Input).focus)

    @property
    def _way(self) -> str:
        return str(self.query_one("#way", Select).value)

    @property
    def _block(self) -> Block:
        first, second = (self._choice(name) for name in ("first", "second"))
        norm = cast("Literal['rmsnorm', 'layernorm']", str(self.query_one("#norm", Select).value))
        return Block(
            norm,
            self.query_one("#residual", Select).value == "yes",
            first or second,
            second if first else None,
        )

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

    @on(TextArea.Changed, "#pasted")
    def _pasted(self, event: TextArea.Changed) -> None:
        """Keep pasted code in a file; choose its last function as soon as it defines one."""
        event.stop()
        text = event.text_area.text
        if not text.strip():
            return
        try:
            path = keep_pasted(text)
        except KmintError as error:
            self.query_one("#graph", Static).update(error.message)
            return
        found = functions_of(path)
        if found:
            self._choose(f"{path}:{found[-1].name}")

    def _choose(self, reference: str) -> None:
        """Name a function, or a file whose functions are then shown, with inputs to begin with."""
        self.query_one("#reference", Input).value = reference
        path, name = split_reference(reference)
        known = {one.name: one for one in functions_of(expanded(path))}
        if name in known:
            self.query_one("#inputs", Input).value = known[name].guess
            self.query_one("#inputs" if self._way == "file" else "#pasted").focus()

    @on(Button.Pressed, "#start")
    @on(Input.Submitted)
    def _start(self, event: Message) -> None:
        event.stop()
        field = event.input.id if isinstance(event, Input.Submitted) else None
        matches, functions = self.query_one(OpList), self.query_one(FunctionList)
        if field == "op" and self.op is None and matches.display:
            matches.choose_first()
        elif field == "reference" and functions.display and functions.option_count:
            functions.action_select()
        else:
            self.post_message(self.Started())

    @on(FunctionList.OptionSelected, "#functions")
    def _function_chosen(self, event: FunctionList.OptionSelected) -> None:
        event.stop()
        self._choose(str(event.option.id))

    def _examine_soon(self) -> None:
        """Examine the named function once the form stays unchanged for `EXAMINED_AFTER`."""
        if self._soon is not None:
            self._soon.stop()
        self._soon = self.set_timer(EXAMINED_AFTER, self._examine)

    def _examine(self) -> None:
        try:
            asked = self.reference
        except KmintError as error:
            self._show_graph(Examined((), error.message))
            return
        if asked is None or asked == self._examined or not expanded(asked.file).is_file():
            return
        self._examined = asked
        self.query_one("#graph", Static).update(f"reading {asked}")
        self._read(asked)

    @work(thread=True, exclusive=True, group="examine", exit_on_error=False)
    def _read(self, asked: Asked) -> None:
        self.post_message(self.Known(asked, examine(asked)))

    @on(Known)
    def _known(self, message: Known) -> None:
        message.stop()
        # A slower reading of an earlier function may end after a later one.
        if message.asked == self._examined:
            self._show_graph(message.examined)

    def _show_graph(self, found: Examined) -> None:
        graph = self.query_one("#graph", Static)
        graph.update("\n".join((*([found.refused] if found.refused else []), *found.lines)))
        graph.set_class(bool(found.refused), "-refused")

    @on(OpList.OptionSelected, "#matches")
    def _matched(self, event: OpList.OptionSelected) -> None:
        event.stop()
        self.query_one("#op", Input).value = str(event.option.id)
        self.query_one("#op", Input).focus()

    def _explain(self) -> None:
        way, op = self._way, self.op
        own = way in OWN
        self.query_one("#ways", ContentSwitcher).current = "file" if own else way
        self.query_one("#pasted").display = way == "paste"
        self.query_one("#graph").display = own
        fields = self.query_one(ShapeFields)
        fields.set_class(own, "-unused")
        fields.tell(op)
        functions = self.query_one(FunctionList)
        functions.display = own and self._function_is_open
        if functions.display:
            functions.show(self._text("reference"))
        elif own:
            self._examine_soon()
        wanted = self._text("op")
        matches = self.query_one(OpList)
        matches.display = way == "list" and op is None
        if matches.display:
            matches.show(listed(), wanted)
        if own:
            text = "A PyTorch function of your own; kmint runs its file as you. Element-wise and row-wise functions work."
        elif op is not None:
            text = f"{op.name}: {op.formula}"
        else:
            text = f"{matches.option_count} operations match; two stacked activations work too, such as rmsnorm_silu_tanh"
        self.query_one("#meaning", Static).update(text)

    @property
    def _function_is_open(self) -> bool:
        """True while the user still has to choose a file or a function."""
        wanted = self._text("reference")
        path, name = split_reference(wanted)
        return not wanted or name is None or not expanded(path).is_file()
