"""Stages that code within an error bound, for the first four slots, and the levels they share."""
