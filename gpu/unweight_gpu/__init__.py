"""CUDA side of Unweight, reached through the entry point group ``unweight.accelerators``."""
