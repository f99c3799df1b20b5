"""Look into a file: its header, its tensors, and what every stage did to one of them."""
