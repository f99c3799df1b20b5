"""One module per command: its options, the operation it calls, what it shows."""
