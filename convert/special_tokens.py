"""The settings next to a tokenizer's vocabulary: special tokens, default additions, chat template.

Where two files disagree, the tokenizer's own behaviour counts, as in transformers. The
post-processor of tokenizer.json wins over the flags of tokenizer_config.json. chat_template.jinja
wins over the template inside tokenizer_config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convert import files
from convert.source import read_json

LARGEST_TEMPLATE = 1 << 20

_KEYS = {
    "bos": "bos",
    "eos": "eos",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "mask": "mask",
}
_VOCABULARIES = ("tokenizer.json", "tokenizer.model")
_ADDED = ("bos", "eos", "sep")
# Added tokens that some published tokenizers do not mark as special.
_FORGOTTEN = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
_BRACKETS = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))


def looks_special(text: str) -> bool:
    """True for an added token in the form of a control token, even without a mark as special."""
    return text in _FORGOTTEN or any(
        text.startswith(left) and text.endswith(right) for left, right in _BRACKETS
    )


@dataclass(frozen=True)
class TokenizerHome:
    """The folder of a tokenizer, and the base's, whose config.json and template complete it."""

    folder: Path
    base: Path

    @classmethod
    def of(cls, base: Path, adapter: Path | None) -> TokenizerHome:
        """The adapter's folder if it has a vocabulary, else the base's."""
        own = adapter is not None and any((adapter / name).is_file() for name in _VOCABULARIES)
        return cls(adapter, base) if own and adapter is not None else cls(base, base)


def special_metadata(
    home: TokenizerHome, document: Mapping[str, Any], ids: Mapping[str, int], vocab_size: int
) -> dict[str, Any]:
    """The `tokenizer.*` keys of a folder.

    `document` is tokenizer.json (or empty), `ids` maps token text to id. Of several ids in
    config.json that end an answer, the first is the EOS and the second the end of a turn.
    """
    config, model = (
        _optional(home.folder / "tokenizer_config.json"),
        _optional(home.base / "config.json"),
    )
    text_model = model.get("text_config")
    model = {**text_model, **model} if isinstance(text_model, dict) else model
    texts = {kind: _text(config.get(f"{kind}_token")) for kind in _KEYS}
    metadata: dict[str, Any] = {}
    for kind, key in _KEYS.items():
        listed = model.get(f"{kind}_token_id")
        listed = listed if isinstance(listed, list) else [listed]
        numbers = [ids[texts[kind]]] if texts[kind] in ids else []
        numbers += [
            number for number in listed if _is_id(number, vocab_size) and number not in numbers
        ]
        if numbers:
            metadata[f"tokenizer.ggml.{key}_token_id"] = numbers[0]
        if kind == "eos" and len(numbers) > 1:
            metadata["tokenizer.ggml.eot_token_id"] = numbers[1]
    added = _added_by_default(document.get("post_processor"), texts)
    for kind in _ADDED:
        flag = added.get(kind, config.get(f"add_{kind}_token"))
        if isinstance(flag, bool):
            metadata[f"tokenizer.ggml.add_{kind}_token"] = flag
    template = _chat_template(home.folder, config)
    if template is None and home.folder != home.base:
        template = _chat_template(home.base, _optional(home.base / "tokenizer_config.json"))
    return metadata if template is None else {**metadata, "tokenizer.chat_template": template}


def _is_id(number: Any, vocab_size: int) -> bool:
    return type(number) is int and 0 <= number < vocab_size


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: Any) -> str:
    """The text of a token, which is a string or an object; "" without one."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _added_by_default(post: Any, texts: Mapping[str, str]) -> dict[str, bool]:
    """The special tokens that a post-processor adds to a single text, as far as it says."""
    if not isinstance(post, dict):
        return {}
    added: dict[str, bool] = {}
    for part in post.get("processors", [post]):
        if part.get("type") == "ByteLevel":
            added = {"bos": False, "eos": False, **added}
        elif part.get("type") == "TemplateProcessing" and len(part.get("single", [])) > 1:
            for kind, entry in (("bos", part["single"][0]), ("eos", part["single"][-1])):
                if "SpecialToken" in entry:
                    added[kind] = entry["SpecialToken"].get("id") == texts[kind]
    return added


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The default chat template; kmint does not use a folder's other templates."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return files.read_plain(file, most_bytes=LARGEST_TEMPLATE).decode("utf-8")
    template = config.get("chat_template") or _optional(folder / "chat_template.json").get(
        "chat_template"
    )
    if isinstance(template, list):
        template = next(
            (
                entry.get("template")
                for entry in template
                if isinstance(entry, dict) and entry.get("name") == "default"
            ),
            None,
        )
    return template if isinstance(template, str) else None
