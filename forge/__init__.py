"""How the embedded smith is made: corpus grammar, tokenizer, training, export. Not installed with the package."""
