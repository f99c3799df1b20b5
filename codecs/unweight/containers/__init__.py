"""Readers and writers of the container formats that Unweight accepts and produces."""
