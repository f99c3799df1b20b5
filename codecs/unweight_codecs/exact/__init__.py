"""Stages that code without loss, for the first four slots. They never import each other."""
