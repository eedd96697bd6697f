"""What a tokenizer's folder says besides its vocabulary: special token ids, which are added by default, the chat template.

Where two files disagree, what the tokenizer would do counts: the post-processor of tokenizer.json over the flags of
tokenizer_config.json, and chat_template.jinja over the template inside tokenizer_config.json, as in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convert.source import read_json

_KEYS = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "mask": "mask"}
_ADDED = ("bos", "eos", "sep")
# Added tokens that some published tokenizers forgot to mark as special.
_FORGOTTEN = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
_BRACKETS = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))


def looks_special(text: str) -> bool:
    """Whether an added token is a control token by its looks, even where the tokenizer does not say so."""
    return text in _FORGOTTEN or any(text.startswith(left) and text.endswith(right) for left, right in _BRACKETS)


def special_metadata(folder: Path, document: Mapping[str, Any], ids: Mapping[str, int], vocab_size: int) -> dict[str, Any]:
    """The `tokenizer.*` keys of a folder; `document` is tokenizer.json (or empty), `ids` maps token text to id."""
    config, model = _optional(folder / "tokenizer_config.json"), _optional(folder / "config.json")
    text_model = model.get("text_config")
    model = {**text_model, **model} if isinstance(text_model, dict) else model
    texts = {kind: _text(config.get(f"{kind}_token")) for kind in _KEYS}
    metadata: dict[str, Any] = {}
    for kind, key in _KEYS.items():
        number = ids.get(texts[kind], model.get(f"{kind}_token_id"))
        if type(number) is int and 0 <= number < vocab_size:
            metadata[f"tokenizer.ggml.{key}_token_id"] = number
    added = _added_by_default(document.get("post_processor"), texts)
    for kind in _ADDED:
        flag = added.get(kind, config.get(f"add_{kind}_token"))
        if isinstance(flag, bool):
            metadata[f"tokenizer.ggml.add_{kind}_token"] = flag
    template = _chat_template(folder, config)
    return metadata if template is None else {**metadata, "tokenizer.chat_template": template}


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: Any) -> str:
    """A token's text, which is written plainly or as an object; "" without one."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _added_by_default(post: Any, texts: Mapping[str, str]) -> dict[str, bool]:
    """Which special tokens a post-processor puts around a single text; nothing where it says nothing."""
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
    """The default chat template; the other named ones of a folder are for uses that kmint does not have."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template") or _optional(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        template = next((entry.get("template") for entry in template if isinstance(entry, dict) and entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None
