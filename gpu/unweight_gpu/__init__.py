"""CUDA side of Unweight, reached through entry points: an accelerator and a tuner."""
