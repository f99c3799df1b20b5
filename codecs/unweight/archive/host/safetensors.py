"""Unweight files in safetensors, for sources of any container."""

from collections.abc import Collection, Sequence

from unweight.containers import safetensors
from unweight.containers.base import ContainerIndex
from unweight.manifest import DIGEST_KEY, MANIFEST_KEY
from unweight_codecs.tensor_spec import DTYPES, TensorSpec


class SafetensorsHost:
    """Digest and manifest are string metadata; a coded tensor is U8."""

    coded_dtype = "U8"
    inline_header = True
    lead_at = 8
    lead = b'{"__metadata__":{"' + DIGEST_KEY.encode() + b'":"'

    def own_keys(self, index: ContainerIndex) -> list[str]:
        """Return those of digest and manifest that the metadata have."""
        return [key for key in (MANIFEST_KEY, DIGEST_KEY) if key in (index.metadata or {})]

    def stored(self, spec: TensorSpec) -> tuple[str, tuple[int, ...]]:
        """Return the tensor's own dtype and shape where safetensors has the dtype."""
        return (spec.dtype, spec.shape) if spec.dtype in DTYPES else ("U8", (spec.nbytes,))

    def alignment(self, source: ContainerIndex) -> int:
        """Return 1: tensors follow each other."""
        return 1

    def header(
        self,
        source: ContainerIndex,
        coded: Collection[str],
        sizes: Sequence[int],
        texts: tuple[str, str, bytes],
        length: int | None,
    ) -> bytes:
        """Return the header with the source's own metadata after ours."""
        digest, manifest, _ = texts
        metadata = {DIGEST_KEY: digest, MANIFEST_KEY: manifest} | (source.metadata or {})
        entries = [
            (entry.spec.name, self.coded_dtype, (size,), size)
            if entry.spec.name in coded
            else (entry.spec.name, *self.stored(entry.spec), size)
            for entry, size in zip(source.tensors, sizes, strict=True)
        ]
        return safetensors.header_bytes(entries, metadata, length=length)

    def manifest(self, index: ContainerIndex) -> tuple[str, bytes]:
        """Return the manifest, which holds the source header itself."""
        return (index.metadata or {})[MANIFEST_KEY], b""
