"""Measuring on a CUDA device: kernels compared first, then timed."""
