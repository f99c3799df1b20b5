"""Measuring on the processor: coders in memory, whole processes, peers."""
