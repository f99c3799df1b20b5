"""Compression of model weights: containers, stages, entropy coding and the operations on files."""

__version__ = "0.1.0"
