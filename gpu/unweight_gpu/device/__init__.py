"""A CUDA device: what is asked of it, and CuPy, which answers.

From the top: ``timing``; ``cupy_device`` and its failures; ``compilation`` of kernels,
which a ``cache`` keeps; ``buffers``; and the ``interface`` through which all else asks a device, so
that tests can put a simulator in its place.
"""
