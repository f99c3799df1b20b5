"""Which cases of a large table run on the NumPy reference too, which takes five times as long."""

import pytest


def one_in(cases: int, number: int) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of the case ``number``: all but every so many-th are left out there."""
    return (pytest.mark.not_on_reference,) if number % cases else ()
