"""Makes the embedded smith: corpus, tokenizer, training, export. Not part of the package."""
