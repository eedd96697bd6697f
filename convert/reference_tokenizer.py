"""Token ids of a text from the checkpoint's own tokenizer, for comparison with llama.cpp's.

Hugging Face `tokenizers` reads tokenizer.json. A tokenizer.model alone needs the `sentencepiece`
package, which kmint does not depend on. That package knows no added tokens and reads special ones
in another way, so texts with one are left out. Both run in a limited child, because a stranger's tokenizer.json holds regular
expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from convert.errors import VocabError
from convert.limited_child import ChildFailed, ask, serve
from convert.sentencepiece import CONTROL, UNKNOWN, USER_DEFINED, read_sentencepiece

SECONDS = 120
MEMORY_BYTES = 8 << 30
_NAMED = frozenset({CONTROL, UNKNOWN, USER_DEFINED})


@dataclass(frozen=True)
class Encoded:
    """The encoded texts, their ids, and the name of the tokenizer; `reason` explains a lack of
    texts.
    """

    texts: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    by: str
    reason: str = ""


def encode(folder: Path, texts: Sequence[str]) -> Encoded:
    """Encode without adding special tokens; special tokens in the text are recognised.

    Raises VocabError when that is impossible.
    """
    request = {"folder": str(folder.absolute()), "texts": list(texts)}
    try:
        answer: dict[str, Any] = ask(
            "reference_tokenizer", request, seconds=SECONDS, memory_bytes=MEMORY_BYTES
        )
    except ChildFailed as failed:
        raise VocabError(
            f"the tokenizer of {folder} cannot encode a text: {failed}",
            "download the tokenizer's files again",
        ) from None
    ids = tuple(tuple(numbers) for numbers in answer["ids"])
    return Encoded(tuple(answer["texts"]), ids, answer["by"], answer["reason"])


def _encode(request: dict[str, Any]) -> dict[str, object]:
    return asdict(_encoded(Path(request["folder"]), request["texts"]))


def _encoded(folder: Path, texts: Sequence[str]) -> Encoded:
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # A file may request texts of one length, which only training needs.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = tuple(tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
        return Encoded(tuple(texts), ids, "tokenizers")
    if find_spec("sentencepiece") is None:
        return Encoded((), (), "", "there is no tokenizer.json, and sentencepiece is not installed")
    file = folder / "tokenizer.model"
    processor: Any = import_module("sentencepiece").SentencePieceProcessor(model_file=str(file))
    # It reads the name of a control token as text, and begins the text before a symbol of the user
    # with a blank.
    names = [piece.text for piece in read_sentencepiece(file).pieces if piece.kind in _NAMED]
    plain = tuple(text for text in texts if not any(name in text for name in ("<|", *names)))
    return Encoded(plain, tuple(tuple(processor.encode(text)) for text in plain), "sentencepiece")


if __name__ == "__main__":
    serve(_encode)
