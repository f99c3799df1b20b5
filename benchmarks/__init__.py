"""Sizes and rates of Unweight beside its peers: ``python -m benchmarks``. See README.md here."""
