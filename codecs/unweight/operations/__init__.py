"""Use cases on files: compress, decompress, verify, inspect. No terminal, no exit codes."""
