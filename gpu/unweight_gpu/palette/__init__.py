"""BF16 matrices that stay compressed on the device, and products with them.

From the top:

================ ==========================================================================
``cuda``         cuBLAS, and a backend that knows what was measured on a device
``tuning``       measures the strategies
``measurements`` keeps what was measured, and chooses by it
``linear``       layers, which multiply by one of the strategies
``strategy``     the ways to multiply, and which to take without a measurement
``product``      the fused kernel
``codec``        words to palettes and back on a device
``reference``    the same in NumPy, which defines it
``format``       where what of a palette lies
================ ==========================================================================
"""
