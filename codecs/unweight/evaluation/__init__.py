"""What a change of the weights does to a model: perplexity, divergence, sensitivity.

A library for the commands. torch and transformers are imported inside functions only, so that the
command line starts, and does everything else, without them.
"""
