"""zstd frames that declare more than they hold."""

import struct

TERABYTE = 1 << 40  # more than a machine that runs the tests may allocate

_MAGIC = 0xFD2FB528
_EIGHT_BYTE_SIZE = 0xE0  # the descriptor: no checksum, no dictionary, single segment
_EMPTY_LAST_BLOCK = b"\x01\x00\x00"


def frame_declaring(size: int) -> bytes:
    """Return a frame that declares ``size`` bytes but holds none."""
    return struct.pack("<IBQ", _MAGIC, _EIGHT_BYTE_SIZE, size) + _EMPTY_LAST_BLOCK
