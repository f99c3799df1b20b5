"""Checksums, comparisons and histograms of buffers on a device."""
