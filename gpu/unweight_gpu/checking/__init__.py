"""Checksums and comparisons on a device."""
