"""Coded chunks to words on a device. Who calls whom, from the top; each knows those below only.

================ ==============================================================================
``engine``       decodes the spans of files in order, and lets the processor do the rest
``overlap``      reads one batch while the device works on the one before
``transfer``     reads a batch into a staging buffer, uploads it and has it decoded
``decoder``      launches the kernels over a batch
``batch``        describes spans to the kernels: where each chunk is read and written
``obstacles``    says what no kernel decodes
``tensor_table`` describes the tensors of a batch, once each
``teams``        groups chunks that need the same tables, for a thread block each
``records``      the layout of all that, as ``kernels/chunks.cu`` and ``streams.cu`` read it
================ ==============================================================================

``unweight_gpu.device_tensors`` stands on ``transfer`` too, and leaves the words on the device.
"""
