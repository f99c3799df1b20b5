"""The terminal itself: streams, colours, progress bars, signals, and errors as one line."""
