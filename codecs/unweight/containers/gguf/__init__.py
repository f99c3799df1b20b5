"""GGUF: a strict reader of its header, a writer of headers, and the tensor types of GGML."""
