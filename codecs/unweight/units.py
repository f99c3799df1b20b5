"""Numbers and names as people read them."""

import math

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def size(nbytes: float) -> str:
    """Return ``nbytes`` with three significant digits and a decimal prefix: ``"1.23 GB"``."""
    value, prefix = float(nbytes), 0
    # 999.5 would already be printed as 1000, so it belongs to the next prefix.
    while abs(value) >= 999.5 and prefix < len(_PREFIXES) - 1:
        value, prefix = value / 1000, prefix + 1
    if prefix == 0:
        return f"{value:.0f} B"
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f} {_PREFIXES[prefix]}B"


def rate(nbytes: float, seconds: float) -> str:
    """Return bytes per second, or a dash where nothing was measured."""
    return f"{size(nbytes / seconds)}/s" if seconds > 0 and nbytes > 0 else "-"


def percent(part: float, whole: float, decimals: int = 1) -> str:
    """Return ``part`` as a percentage of ``whole``, or a dash when ``whole`` is zero."""
    return f"{100 * part / whole:.{decimals}f} %" if whole else "-"


def duration(seconds: float) -> str:
    """Return a span of time: ``"0.42 s"``, ``"12.3 s"``, ``"3 min 20 s"``, ``"2 h 05 min"``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return ``"1 tensor"``, ``"1,234 tensors"``; ``plural`` is for nouns that take no s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def bits(value: float) -> str:
    """Return bits per value with three decimals, or a dash where it is not finite."""
    return f"{value:.3f}" if math.isfinite(value) else "-"


def printable(text: str) -> str:
    """Return ``text`` on one line, with everything a terminal would act on written as an escape.

    Names come from files and may hold line breaks, escape sequences or undecodable bytes.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def shortened(text: str, limit: int = 160) -> str:
    """Return ``text`` as ``printable`` does, with at most ``limit`` of its characters."""
    if len(text) <= limit:
        return printable(text)
    return f"{printable(text[:limit])}… ({len(text):,} characters)"
