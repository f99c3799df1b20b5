"""Entropy coding: models of byte streams, and the coders that turn streams into segments."""
