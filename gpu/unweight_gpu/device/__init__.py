"""A CUDA device: what is asked of it, CuPy behind it, compiled kernels, its failures."""
