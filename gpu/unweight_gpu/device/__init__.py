"""A CUDA device: what is asked of it, and CuPy, which answers.

From the top: ``timing``; ``cupy_device``; ``compilation`` of kernels, which a ``cache`` keeps;
``buffers``; ``failures``; and the ``interface`` through which all else asks a device, so that tests
can put a simulator in its place.
"""
