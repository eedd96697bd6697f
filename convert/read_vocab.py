"""A checkpoint folder's tokenizer -> GGUF vocabulary keys, by the reader of its kind.

Limits: Unigram and WordPiece tokenizers are refused.
"""

from __future__ import annotations

from pathlib import Path

from convert.errors import VocabError
from convert.source import read_json
from convert.vocab import Vocab
from convert.vocab_bpe import read_bpe
from convert.vocab_spm import read_spm


def read_vocab(folder: Path, vocab_size: int, *, pre: str | None = None) -> Vocab:
    """The vocabulary of a folder, padded to `vocab_size`. Raises SourceError or VocabError.

    tokenizer.json decides what kind it is; a tokenizer.model beside it, or alone, gives a SentencePiece vocabulary its scores.
    """
    try:
        return _read_vocab(folder, vocab_size, pre)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise VocabError(f"{folder}: the tokenizer's files are malformed ({error!r})", "download them again") from None


def _read_vocab(folder: Path, vocab_size: int, pre: str | None) -> Vocab:
    has_json, has_model = (folder / "tokenizer.json").is_file(), (folder / "tokenizer.model").is_file()
    if has_model and not has_json:
        return read_spm(folder, {}, vocab_size)
    document = read_json(folder / "tokenizer.json")
    model = document.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise VocabError(f"{folder / 'tokenizer.json'}: not a BPE tokenizer")
    return read_spm(folder, document, vocab_size) if model.get("byte_fallback") else read_bpe(folder, document, vocab_size, pre=pre)
