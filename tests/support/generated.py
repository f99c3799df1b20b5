"""What tests over generated input share: their settings, and damage to files."""

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.folders import entries
from unweight.operations.decompress import decompress
from unweight.operations.progress import NoProgress
from unweight_codecs.errors import UnweightError

# A busy machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

Mutation = tuple[str, float, Any]  # kind, place from 0 for the start to 1 for the end, value

_LENGTHS = st.integers(1, 300)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "set": st.integers(0, 255),
    "set early": st.integers(0, 255),
    "insert": st.binary(min_size=1, max_size=20),
    "delete": _LENGTHS,
    "cut": st.none(),
    "repeat": _LENGTHS,
    "zero": _LENGTHS,
}
MUTATIONS: st.SearchStrategy[list[Mutation]] = st.lists(
    st.one_of([st.tuples(st.just(kind), st.floats(0, 1), of) for kind, of in _VALUES.items()]),
    min_size=1,
    max_size=3,
)


def mutated(data: bytes, mutation: Mutation) -> bytes:
    """Return ``data`` with one change."""
    kind, place, value = mutation
    at = int(place * (len(data) - 1)) // (10 if kind == "set early" else 1)
    before, after = data[:at], data[at:]
    match kind:
        case "insert":
            return before + bytes(value) + after
        case "delete":
            return before + after[value:]
        case "cut":
            return before
        case "repeat":
            return before + after[:value] + after
        case "zero":
            return before + bytes(len(after[:value])) + after[value:]
        case _:
            return before + bytes([value]) + after[1:]


def check_damaged(
    archive: Path, original: Path, mutations: list[Mutation], empty_folder: Path
) -> None:
    """Check that a damaged archive is refused, leaving nothing, or still gives ``original``."""
    data = archive.read_bytes()
    for mutation in mutations:
        data = mutated(data, mutation)
    damaged, back = empty_folder / "damaged", empty_folder / "back"
    damaged.write_bytes(data)
    error = _refusal(damaged, back)
    if error is None:
        assert back.read_bytes() == original.read_bytes()
        return
    assert error.exit_code in (3, 4)
    assert "\n" not in str(error)
    assert entries(empty_folder) == ["damaged"]


def _refusal(source: Path, target: Path) -> UnweightError | None:
    try:
        decompress(source, target, threads=1, force=False, progress=NoProgress())
    except UnweightError as error:
        return error
    return None
