"""What is measured: real weights, data that no coder can shrink, GGUF models."""
