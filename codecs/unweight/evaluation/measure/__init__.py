"""What a change of the weights does to a model: perplexity, divergence, and the gate on them."""
