"""Which files belong to a snapshot: a model from elsewhere must not make us read anything else."""

import os
from pathlib import Path

from unweight_codecs.errors import FormatError, ResourceError


class Boundary:
    """The limits of one snapshot directory.

    Inside is what lies in the directory once all links are followed. A Hugging Face hub cache
    stores ``<repo>/snapshots/<revision>/...`` as links to ``<repo>/blobs/<hash>``; there the blobs
    of the same repository are inside too.
    """

    def __init__(self, root: Path) -> None:
        """Set the limits to ``root``; raises ResourceError when it cannot be reached."""
        self._root = root
        try:
            self._real_root = Path(os.path.realpath(root, strict=True))
        except OSError as error:
            raise ResourceError(f"{root}: cannot be read: {error.strerror}") from error
        self._blobs = _hub_blobs(self._real_root)

    def real_path(self, path: Path) -> Path:
        """Follow all links of ``path``; raises FormatError when they lead outside or nowhere."""
        try:
            real = Path(os.path.realpath(path, strict=True))
        except PermissionError as error:
            raise ResourceError(f"{path}: cannot be read: {error.strerror}") from error
        except OSError as error:
            raise FormatError(
                f"{path}: cannot be followed: {error.strerror}",
                hint="remove the broken link or restore what it points to",
            ) from error
        if real.is_relative_to(self._real_root) or real.parent == self._blobs:
            return real
        raise FormatError(
            f"{path}: links to {real}, outside {self._root}",
            hint="nothing outside the model directory is read: replace the link by a copy",
        )


def _hub_blobs(real_root: Path) -> Path | None:
    """Return the blob folder of the hub cache that ``real_root`` is a part of, if any."""
    for revision in (real_root, *real_root.parents):
        if revision.parent.name == "snapshots":
            return revision.parent.parent / "blobs"
    return None
