"""A causal language model: found, loaded, tokenised, and with some weights exchanged."""
