"""Takes a model of any framework → gives scores of tokens, reduced where its logits were made."""
