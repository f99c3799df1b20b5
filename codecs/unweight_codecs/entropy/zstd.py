"""Zstandard with sizes that are checked before anything is allocated."""

import zstandard

from unweight_codecs.errors import IntegrityError

MAX_LEVEL = 19


def compress(data: bytes, level: int = MAX_LEVEL) -> bytes:
    """Return one frame that declares its content size."""
    return zstandard.ZstdCompressor(level=level, write_content_size=True).compress(data)


def decompress(data: bytes, size: int) -> bytes:
    """Return the ``size`` bytes of a frame; raises IntegrityError if it holds any other number.

    The declared size is compared first: the decoder would allocate whatever the frame claims.
    """
    try:
        declared = zstandard.get_frame_parameters(data).content_size
        if declared != size:
            raise IntegrityError(f"a zstd frame declares {declared} bytes instead of {size}")
        decoded = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise IntegrityError(f"a zstd frame is damaged: {error}") from None
    if len(decoded) != size:
        raise IntegrityError("a zstd frame holds another size than it declares")
    return decoded
