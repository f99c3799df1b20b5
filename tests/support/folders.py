"""What lies in a folder."""

from pathlib import Path


def entries(folder: Path) -> list[str]:
    """Return the sorted names in a folder."""
    return sorted(path.name for path in folder.iterdir())
