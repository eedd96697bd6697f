"""`ModelNew` of KernelBench as the function `run`: accepted forms and refusals."""

from __future__ import annotations

import ast

import pytest

from kmint_tui.model_new import NotWrapped, is_model_new, literal_init, wrapped

CLASS = """
class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-5, bias=True):
        super().__init__()
        self.eps = eps
        self.features = features
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        %s
        return y

after = 1
"""


def run_of(
    line: str, arguments: tuple[str, ...] = ("x", "weight"), init: tuple[object, ...] = (64,)
) -> str:
    return wrapped(CLASS % line, arguments, init).source


def test_parameters_become_arguments_and_plain_values_constants() -> None:
    made = wrapped(
        CLASS % "y = launch(x, self.weight, self.eps, self.features)", ("x", "weight"), (64, 1e-6)
    )
    assert made.signature == "run(x, weight)"
    assert "y = launch(x, weight, 1e-06, 64)" in made.source
    assert "class ModelNew" not in made.source and "after = 1" in made.source
    assert "launch(x, weight, 1e-05, 64)" in run_of(
        "y = launch(x, self.weight, self.eps, self.features)"
    )


def test_the_parameter_of_a_part_is_found_by_its_path() -> None:
    text = run_of("y = launch(x, self.norm.weight)", ("x", "norm_weight"))
    assert "launch(x, norm_weight)" in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y = self.linear(x)", "self.linear is neither"),
        ("y = self.__init__(x)", "calls the method '__init__'"),
        ("y = helper(self)", "hands self on"),
        ("self.calls = 1", "changes self.calls"),
        ("y = self.bias", "self.bias is neither"),
        ("weight = x; y = launch(x, self.weight)", "uses the name 'weight'"),
        ("y = (lambda weight: self.weight)(x)", "uses the name 'weight'"),
    ],
)
def test_what_forward_may_not_do_is_refused_with_its_line(line: str, words: str) -> None:
    with pytest.raises(NotWrapped) as refused:
        run_of(line)
    assert words in refused.value.message and "line 10" in refused.value.message
    assert "function `run`" in refused.value.fix


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class ModelNew:\n    pass\n", "no method `forward`"),
        ("class ModelNew:\n    def forward(self, *xs): ...\n", "*args"),
        ("class ModelNew:\n    def forward(): ...\n", "takes no `self`"),
        ("class ModelNew:\n    def forward(self, a, b, c): ...\n", "takes 3 arguments"),
        ("class ModelNew:\n    def forward(self, weight): ...\n", "has a parameter 'weight'"),
        ("class ModelNew: ...\nclass ModelNew: ...\n", "2 times"),
    ],
)
def test_a_class_of_another_form_is_refused(source: str, words: str) -> None:
    with pytest.raises(NotWrapped) as refused:
        wrapped(source, ("x", "weight"))
    assert words in refused.value.message


def test_an_attribute_with_two_values_is_no_plain_value() -> None:
    source = "class ModelNew:\n    def __init__(self):\n        self.n = 1\n        self.n = 2\n    def forward(self, x): return self.n\n"
    with pytest.raises(NotWrapped, match="self.n is neither"):
        wrapped(source, ("x",))


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("class ModelNew: ...", True),
        ("class ModelNew: ...\ndef run(x): ...", False),
        ("def run(x): ...", False),
        ("class ModelNew(:", False),
        ("(" * 5000, False),
    ],
)
def test_which_files_are_wrapped(source: str, is_one: bool) -> None:
    assert is_model_new(source) is is_one


@pytest.mark.parametrize(
    ("reference", "values"),
    [
        ("features = 64\ndef get_init_inputs():\n    return [features, 1e-5]", (64, 1e-5)),
        ("def get_init_inputs():\n    return [torch.ones(3)]", ()),
        ("def get_init_inputs():\n    return make()", ()),
        ("def other(): ...", ()),
        ("def get_init_inputs(:", ()),
    ],
)
def test_the_values_of_a_reference_are_read_and_not_run(
    reference: str, values: tuple[object, ...]
) -> None:
    assert literal_init(reference) == values


def test_the_new_text_is_python() -> None:
    ast.parse(run_of("y = launch(x, self.weight)"))
