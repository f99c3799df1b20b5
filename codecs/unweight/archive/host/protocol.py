"""What a container must offer to be the host of an Unweight file."""

from collections.abc import Collection, Sequence
from typing import Protocol

from unweight.containers.base import ContainerIndex
from unweight_codecs.tensor_spec import TensorSpec


class Host(Protocol):
    """How a container holds digest, manifest, source header and tensors of an Unweight file.

    Attributes:
        coded_dtype: dtype of a list of bytes, which a coded tensor is.
        inline_header: Whether the manifest itself holds the source's header.
        lead: The bytes of a header from ``lead_at`` up to the 16 digits of its digest.
    """

    coded_dtype: str
    inline_header: bool
    lead_at: int
    lead: bytes

    def own_keys(self, index: ContainerIndex) -> list[str]:
        """Return the keys of a file that only Unweight writes."""
        ...

    def stored(self, spec: TensorSpec) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of a tensor that is stored as it is.

        One of a dtype that the container does not have is a list of bytes, as coded ones are.
        """
        ...

    def alignment(self, source: ContainerIndex) -> int:
        """Return where tensors may begin, counted from the end of the header."""
        ...

    def header(
        self,
        source: ContainerIndex,
        coded: Collection[str],
        sizes: Sequence[int],
        texts: tuple[str, str, bytes],
        length: int | None,
    ) -> bytes:
        """Return the header; ``texts`` are digest, manifest and the compressed source header."""
        ...

    def manifest(self, index: ContainerIndex) -> tuple[str, bytes]:
        """Return the manifest and the compressed source header of an Unweight file."""
        ...
