"""Walks the header of a GGUF file, reading of the file only as far as the header reaches."""

import struct
from collections.abc import Callable
from typing import Final

from unweight_codecs.errors import FormatError

MAX_HEADER_BYTES: Final = 1 << 26  # real ones have up to about 20 MB, nearly all of it vocabulary

Fetch = Callable[[int, int], bytes]  # offset, length -> exactly that many bytes

_STEP_BYTES: Final = 1 << 20  # to fetch at once, at least
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class Cursor:
    """A position in a header of unknown length, of which ``data`` holds what was needed so far.

    Every method raises FormatError when what it is to read cannot fit the file.
    """

    def __init__(self, fetch: Fetch, size: int) -> None:
        """Start at the first byte of a file of ``size`` bytes."""
        self._fetch = fetch
        self._limit = min(size, MAX_HEADER_BYTES)
        self._whole = size <= MAX_HEADER_BYTES
        self.data = bytearray()
        self.at = 0

    def skip(self, length: int) -> int:
        """Step over ``length`` bytes, which ``data`` then holds; returns where they start."""
        start = self.at
        self._hold(start + length)
        self.at = start + length
        return start

    def u32(self) -> int:
        """Read a 32-bit number."""
        start = self.skip(4)
        return int(_U32.unpack_from(self.data, start)[0])

    def u64(self) -> int:
        """Read a 64-bit number."""
        start = self.skip(8)
        return int(_U64.unpack_from(self.data, start)[0])

    def string(self) -> bytes:
        """Read a string: its length, then its bytes, which need not be UTF-8."""
        length = self.u64()
        start = self.skip(length)
        return bytes(self.data[start : start + length])

    def count(self, what: str, min_bytes: int) -> int:
        """Read how many ``what`` follow, none of them shorter than ``min_bytes``."""
        count = self.u64()
        if count * min_bytes > self._limit - self.at:
            raise FormatError(
                f"{count} {what} cannot fit {self._limit - self.at} bytes",
                hint="the file is damaged or incomplete: download or copy it again",
            )
        return count

    def skip_strings(self, count: int) -> None:
        """Step over ``count`` strings."""
        # The hot loop of every header: vocabularies have hundreds of thousands of entries.
        unpack, data, at = _U64.unpack_from, self.data, self.at
        for _ in range(count):
            if at + 8 > len(data):
                self._hold(at + 8)
            at += 8 + unpack(data, at)[0]
        self._hold(at)
        self.at = at

    def _hold(self, end: int) -> None:
        if end > self._limit:
            if self._whole:
                raise FormatError(
                    f"the header goes on to byte {end}, the file ends at {self._limit}",
                    hint="the file is damaged or incomplete: download or copy it again",
                )
            raise FormatError(f"the header is longer than {self._limit} bytes")
        held = len(self.data)
        if end > held:
            self.data += self._fetch(held, min(max(end - held, _STEP_BYTES), self._limit - held))
