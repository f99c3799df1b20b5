"""Entropy coding: frequency tables of byte streams, and which coder each stream gets."""
