"""A checkpoint folder's tokenizer -> GGUF vocabulary keys, by the reader of its kind.

Limits: Unigram and WordPiece tokenizers are refused.
"""

from __future__ import annotations

from convert.errors import VocabError
from convert.source import read_json
from convert.special_tokens import TokenizerHome
from convert.vocab import Vocab
from convert.vocab_bpe import read_bpe
from convert.vocab_spm import read_spm


def read_vocab(home: TokenizerHome, vocab_size: int, *, pre: str | None = None) -> Vocab:
    """The vocabulary of a tokenizer, padded to `vocab_size`. Raises SourceError or VocabError.

    tokenizer.json decides the kind. A tokenizer.model next to it, or alone, gives a SentencePiece
    vocabulary its scores.
    """
    folder = home.folder
    try:
        return _read_vocab(home, vocab_size, pre)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise VocabError(
            f"{folder}: the tokenizer's files are malformed ({error!r})", "download them again"
        ) from None


def _read_vocab(home: TokenizerHome, vocab_size: int, pre: str | None) -> Vocab:
    folder = home.folder
    has_json, has_model = (
        (folder / "tokenizer.json").is_file(),
        (folder / "tokenizer.model").is_file(),
    )
    if has_model and not has_json:
        return read_spm(home, {}, vocab_size)
    document = read_json(folder / "tokenizer.json")
    model = document.get("model")
    if (
        not isinstance(model, dict)
        or model.get("type") != "BPE"
        or not isinstance(model.get("vocab"), dict)
    ):
        raise VocabError(f"{folder / 'tokenizer.json'}: not a BPE tokenizer")
    return (
        read_spm(home, document, vocab_size)
        if model.get("byte_fallback")
        else read_bpe(home, document, vocab_size, pre=pre)
    )
