"""Model checkpoints made smaller, by default without changing a bit, and proof of it."""

from unweight_codecs import __version__

__all__ = ["__version__"]
