"""The payload of a coded tensor: its head, the chunk directory, and the segments of every chunk."""
