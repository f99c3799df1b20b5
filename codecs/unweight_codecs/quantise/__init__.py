"""Coding with a bounded error: words on a grid of levels."""
