"""Coded chunks to words on a device: records, batches, transfers, and the engine over them."""
