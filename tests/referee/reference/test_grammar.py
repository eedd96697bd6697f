"""The texts of --input and --fix: what they mean, and errors of one line that quote the position."""

from __future__ import annotations

import pytest

from referee.reference.grammar import parse_fixed, parse_inputs
from referee.reference.inputs import Dim, DtypeName, ScalarInput, TensorInput, Values
from referee.reference.unusable import InputError, UnusableReference


@pytest.mark.parametrize(
    "text",
    [
        "x=bf16[B,2048,4096]",
        "x=bf16[B,2048,4096] w=bf16[4096] eps=1e-06|1e-05",
        "logits=f32[N,V] labels=i64[N]:0..V|-100",
        "ids=i64[B,S]:0..V table=bf16[V,2048] eps=1e-06",
        "q=bf16[B,H,T,D] cos=f32[T,D/2] packed=f16[B,2*D] longer=f32[T+1] shorter=f32[T-1]",
        "x=f32[4,8](16,1)+3:0.5..2 choice=i8[4]:0|1|5 perm=i64[N]:distinct scalar=f32[]",
        "x=i32[4]:-3..4 mode='mean' flag=True none=None shape=(4, 8) dtype=torch.float16 k=3 p=-0.5",
        "batch.x=f32[N] batch.mask=bool[N] xs.0=f32[N] xs.1=f32[N]",
    ],
)
def test_a_set_is_written_as_it_is_read(text: str) -> None:
    (found,) = parse_inputs([text])
    assert found.text() == text
    assert parse_inputs([found.text()]) == (found,)


def test_what_a_text_means() -> None:
    (found,) = parse_inputs(["x=bfloat16[B, 2*N], idx=int64[B]:0..N; r=mean"])
    assert found.tensors == {
        "x": TensorInput(dtype="bfloat16", dims=(Dim("B"), Dim("N", times=2))),
        "idx": TensorInput(dtype="int64", dims=(Dim("B"),), values=Values("range", 0, Dim("N"))),
    }
    assert found.scalars == {"r": ScalarInput(("mean",))} and found.symbols == ("B", "N")
    (spaced,) = parse_inputs(["x=i64[ 2*N , B + 1 ]:0..V - 1 w=f32[N - 1 ]"])
    assert spaced.text() == "x=i64[2*N,B+1]:0..V-1 w=f32[N-1]"
    assert parse_inputs(["dtype=torch.bfloat16"])[0].scalars["dtype"].values == (
        DtypeName("bfloat16"),
    )


def test_a_name_that_comes_again_begins_a_new_set() -> None:
    """A set takes from the one before it what it does not name."""
    found = parse_inputs(
        ["x=bf16[B,4]", "w=bf16[4]", "x=bf16[B,8] w=bf16[8]", "eps=1e-6 x=f32[B,2]"]
    )
    assert [one.text() for one in found] == [
        "x=bf16[B,4] w=bf16[4]",
        "x=bf16[B,8] w=bf16[8] eps=1e-06",
        "x=f32[B,2] w=bf16[8] eps=1e-06",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at character 1, the end: expected an argument"),
        ("x", "at character 2, the end: expected '=' after 'x'"),
        ("x=bf17[B,4]", "at character 3, 'bf17[B,4]': expected one of the dtypes bf16, f16, f32"),
        ("x=f64[B,4]", "at character 3, 'f64[B,4]': expected one of the dtypes"),
        ("x=bf16[B,4", "at character 11, the end: expected ',' or ']'"),
        ("x=bf16[B 4]", "at character 10, '4]': expected ',' or ']'"),
        ("x=bf16[-1]", "at character 8, '-1]': expected a size"),
        ("x=bf16[4]w=3", "at character 10, 'w=3': expected a space"),
        ("x=bf16[4]:", "at character 11, the end: expected a number"),
        ("x=i64[4]:0.5..3", "at character 10, '0.5..3': expected a whole number"),
        ("x=f32[4]:distinct", "expected values that float32 takes"),
        ("x=f32[N/0]", "expected a factor and a divisor that are not 0"),
        ("x=f32[4](1,2)", "expected 1 strides, one for each size"),
        ("x=f32[N](1)", "expected numbers for all sizes where strides are given"),
        ("x=(1,", "expected a tuple or list of plain values"),
        ("1=3", "at character 1, '1=3': expected the name of an argument"),
    ],
)
def test_an_error_is_one_line_and_quotes_the_position(text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_inputs([text])
    assert (
        words in str(refused.value)
        and "\n" not in str(refused.value)
        and repr(text) in str(refused.value)
    )


def test_fixed_values() -> None:
    assert parse_fixed(["eps=1e-6", "k=3 flag=true"]) == {"eps": 1e-6, "k": 3, "flag": True}
    for text in ("x=f32[3]", "eps=1|2"):
        with pytest.raises(InputError, match="fixed at one value"):
            parse_fixed([text])


def test_a_size_that_is_no_whole_number_is_refused() -> None:
    assert Dim("D", over=2).at({"D": 8}) == 4
    with pytest.raises(UnusableReference, match="D/2 is no size where D is 7"):
        Dim("D", over=2).at({"D": 7})
