"""The manifest: what an Unweight file says about itself, as canonical JSON in its metadata."""

import base64
import binascii
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from unweight.containers import safetensors
from unweight.containers.base import ContainerIndex
from unweight.containers.registry import container_named
from unweight.containers.strict_json import parse_object
from unweight_codecs import __version__
from unweight_codecs.entropy import zstd
from unweight_codecs.errors import FormatError, IntegrityError, quoted
from unweight_codecs.presets import STORED

FORMAT_MAJOR: Final = 1
FORMAT_MINOR: Final = 0
FEATURE_BOUNDED: Final = "bounded"  # some tensors were changed within an error bound
KNOWN_FEATURES: Final = frozenset({FEATURE_BOUNDED})
MANIFEST_KEY: Final = "unweight.manifest"
DIGEST_KEY: Final = "unweight.digest"
GENERATOR: Final = f"unweight {__version__}"
MODE_LOSSLESS: Final = "lossless"
MODE_BOUNDED: Final = "bounded"
MAX_EPSILON: Final = 1.0  # an error as large as the weights
MAX_SOURCE_HEADER: Final = safetensors.MAX_HEADER_BYTES + 8
MAX_SPARE_PIPELINES: Final = 1000  # more than there are tensors: rules that no tensor matched

_SHA256 = re.compile(r"[0-9a-f]{64}")
_XXH3 = re.compile(r"[0-9a-f]{16}")
_LARGE: Final = 1 << 18  # headers from here up, vocabularies, are compressed at a level that is
_LARGE_LEVEL: Final = 9  # fifteen times as fast as the highest for an eighth more bytes


@dataclass(frozen=True, slots=True)
class CodedTensor:
    """A tensor that was coded.

    Attributes:
        pipeline: Number of its pipeline.
        digest: XXH3-64 of the bytes it is decoded to.
        epsilon: The relative error allowed, in the Frobenius norm; 0 for an exact one.
        error: The relative error it has.
        max_error: The largest absolute error of a weight.
    """

    pipeline: int
    digest: str
    epsilon: float = 0.0
    error: float = 0.0
    max_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an Unweight file.

    Attributes:
        source: The original file's index, rebuilt from its own header.
        source_sha256: SHA-256 of the original file.
        pipelines: Pipelines as ``Pipeline.to_dict`` gives them.
        coded: Coded tensors by name.
        stored_digests: XXH3-64 of every other tensor, by name.
        padding: Bytes of the original that belong to no tensor; empty when they are all zero.
        generator: Program and version that wrote the file.
        format: Major and minor version of the file.
        restored_sha256: SHA-256 of the file that decoding gives; empty for the original's.
        small_header: Whether a large source header is worth the slowest compression.
    """

    source: ContainerIndex
    source_sha256: str
    pipelines: tuple[dict[str, Any], ...]
    coded: dict[str, CodedTensor]
    stored_digests: dict[str, str]
    padding: bytes = b""
    generator: str = GENERATOR
    format: tuple[int, int] = (FORMAT_MAJOR, FORMAT_MINOR)
    restored_sha256: str = ""
    small_header: bool = False

    @property
    def epsilon(self) -> float:
        """The largest relative error allowed in a tensor; 0 for a lossless file."""
        return max((tensor.epsilon for tensor in self.coded.values()), default=0.0)

    @property
    def mode(self) -> str:
        """Whether the original comes back exactly."""
        return MODE_BOUNDED if self.epsilon else MODE_LOSSLESS

    @property
    def expected_sha256(self) -> str:
        """SHA-256 of the file that decoding gives."""
        return self.restored_sha256 or self.source_sha256

    def digest_of(self, name: str) -> str:
        """Return the XXH3-64 of the bytes that decoding a tensor gives."""
        coded = self.coded.get(name)
        return coded.digest if coded else self.stored_digests[name]

    @property
    def packed_header(self) -> bytes:
        """The source's header, compressed."""
        slow = self.small_header or len(self.source.header) < _LARGE
        return _packed(self.source.header, zstd.MAX_LEVEL if slow else _LARGE_LEVEL)

    def gaps(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes between header, each tensor and the end of the original."""
        at = 0
        for _, length in self.source.gaps():
            stored = np.frombuffer(self.padding[at : at + length], np.uint8)
            yield stored if self.padding else np.zeros(length, np.uint8)
            at += length

    def to_json(self, *, inline_header: bool = True) -> str:
        """Return the canonical JSON: sorted keys, no spaces, ASCII only.

        Without ``inline_header`` it only says how long the compressed source header is, which the
        container then keeps elsewhere.
        """
        tensors = {entry.spec.name: entry.spec for entry in self.source.tensors}
        stored = [t.spec.name for t in self.source.tensors if t.spec.name not in self.coded]
        document: dict[str, Any] = {
            "features": [FEATURE_BOUNDED] if self.epsilon else [],
            "format": list(self.format),
            "generator": self.generator,
            "mode": self.mode,
            "pipelines": list(self.pipelines),
            "source": {
                "container": self.source.container,
                "header": _base64(self.packed_header) if inline_header else "",
                "header_bytes": len(self.source.header),
                "sha256": self.source_sha256,
                "size": self.source.size,
            },
            # In file order, 16 digits each: thousands of tiny tensors must not cost a line each.
            "stored": "".join(self.stored_digests[name] for name in stored),
            "tensors": {
                name: {
                    "digest": coded.digest,
                    "dtype": tensors[name].dtype,
                    "pipeline": coded.pipeline,
                    "shape": list(tensors[name].shape),
                }
                | _errors(coded)
                for name, coded in self.coded.items()
            },
        }
        source = document["source"]
        if not inline_header:
            source["header_packed"] = len(self.packed_header)
        if self.restored_sha256:
            source["restored_sha256"] = self.restored_sha256
        if self.epsilon:
            document["epsilon"] = self.epsilon
        if self.padding:
            source["padding"] = _base64(zstd.compress(self.padding))
        return json.dumps(document, sort_keys=True, separators=(",", ":"))


def parse_manifest(
    text: str, packed_header: bytes = b"", header_limit: int = MAX_SOURCE_HEADER
) -> Manifest:
    """Parse and check a manifest; ``packed_header`` is what it does not hold of the source header.

    A source header above ``header_limit`` bytes is refused before it is decompressed. Raises
    FormatError when the manifest needs a newer version, IntegrityError when it is damaged.
    """
    try:
        document = parse_object(text.encode("utf-8"), "manifest")
    except (FormatError, UnicodeEncodeError) as error:
        raise IntegrityError(f"the manifest is damaged: {error}") from None
    _check_version(document)
    try:
        return _parse(document, packed_header, header_limit)
    except FormatError as error:
        raise IntegrityError(f"the manifest's source header is damaged: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise IntegrityError(f"the manifest is damaged: {quoted(error)}") from None


def _check_version(document: Mapping[str, Any]) -> None:
    version = document.get("format")
    generator = quoted(document.get("generator"))
    if not (
        isinstance(version, list) and len(version) == 2 and all(type(n) is int for n in version)
    ):
        raise IntegrityError("the manifest names no format version")
    if version[0] > FORMAT_MAJOR:
        raise FormatError(
            f"the file has format version {version[0]}.{version[1]}, written by {generator}; "
            f"this is {GENERATOR}, which reads up to {FORMAT_MAJOR}.x",
            hint="upgrade unweight",
        )
    if version[0] < 1 or version[1] < 0:
        raise IntegrityError("the manifest names an impossible format version")
    features = document.get("features")
    if not isinstance(features, list):
        raise IntegrityError(f"the manifest's features are not a list but {quoted(features)}")
    unknown = sorted(set(map(str, features)) - KNOWN_FEATURES)
    if unknown:
        raise FormatError(
            f"the file, written by {generator}, uses {quoted(unknown)}, unknown to {GENERATOR}",
            hint="upgrade unweight",
        )
    epsilon = document.get("epsilon", 0)
    if type(epsilon) not in (int, float):  # not isinstance: false is an int to that
        raise IntegrityError(f"the manifest's epsilon is not a number but {quoted(epsilon)}")
    mode = document.get("mode")
    if not isinstance(mode, str):
        raise IntegrityError(f"the manifest's mode is not text but {quoted(mode)}")
    if mode not in (MODE_LOSSLESS, MODE_BOUNDED):
        raise FormatError(
            f"the file has mode {quoted(mode)}, which {GENERATOR} does not know",
            hint="upgrade unweight",
        )


def _parse(document: Mapping[str, Any], packed_header: bytes, header_limit: int) -> Manifest:
    source = document["source"]
    size, header_bytes = _size(source["size"]), _size(source["header_bytes"])
    if header_bytes > min(size, header_limit):
        raise ValueError("the source header has an impossible size")
    packed = packed_header[: _size(source.get("header_packed", 0))]
    packed = base64.b64decode(source["header"], validate=True) or packed
    header = zstd.decompress(packed, header_bytes)
    index = container_named(source["container"]).parse_index(header, size)
    pipelines = _pipelines(document["pipelines"], len(index.tensors))
    names = [entry.spec.name for entry in index.tensors]
    specs = {entry.spec.name: entry.spec for entry in index.tensors}
    coded = {}
    for name, tensor in document["tensors"].items():
        number = tensor["pipeline"]
        if type(number) is not int or not 0 <= number < len(pipelines):
            raise ValueError(f"tensor {quoted(name)} names a pipeline that is not there")
        if (tensor["dtype"], tuple(tensor["shape"])) != (specs[name].dtype, specs[name].shape):
            raise ValueError(
                f"tensor {quoted(name)} has another dtype or shape in the source header"
            )
        digest = _match(_XXH3, tensor["digest"])
        coded[name] = CodedTensor(number, digest, *_read_errors(name, tensor))
    others = [name for name in names if name not in coded]
    digests = document["stored"]
    if len(digests) != 16 * len(others):
        raise ValueError("a wrong number of digests of stored tensors")
    stored = {name: _match(_XXH3, digests[16 * i : 16 * i + 16]) for i, name in enumerate(others)}
    padding = base64.b64decode(source.get("padding", ""), validate=True)
    if padding:
        padding = zstd.decompress(padding, sum(length for _, length in index.gaps()))
    sha256 = _match(_SHA256, source["sha256"])
    generator, (major, minor) = str(document["generator"]), document["format"]
    manifest = Manifest(
        index,
        sha256,
        pipelines,
        coded,
        stored,
        padding,
        generator,
        (major, minor),
        _match(_SHA256, source["restored_sha256"]) if "restored_sha256" in source else "",
    )
    said = document["mode"], document.get("epsilon", 0), "epsilon" in document
    if (manifest.mode, manifest.epsilon, manifest.mode == MODE_BOUNDED) != said:
        raise ValueError("mode and epsilon are not those of the tensors")
    if bool(manifest.restored_sha256) != (manifest.mode == MODE_BOUNDED):
        raise ValueError("the digest of the restored file does not belong to its mode")
    if (FEATURE_BOUNDED in document["features"]) != (manifest.mode == MODE_BOUNDED):
        raise ValueError(f"the feature {FEATURE_BOUNDED} does not belong to its mode")
    return manifest


def _pipelines(values: list[Any], tensors: int) -> tuple[dict[str, Any], ...]:
    if len(values) > tensors + MAX_SPARE_PIPELINES:
        raise ValueError(f"{len(values)} pipelines are too many for {tensors} tensors")
    pipelines = tuple(dict(value) for value in values)
    for pipeline in pipelines:
        name = pipeline["name"]
        if not isinstance(name, str) or name in ("", STORED):
            raise ValueError(f"a pipeline has the impossible name {quoted(name)}")
    return pipelines


@functools.lru_cache(maxsize=1)  # asked for once for every header that is written
def _packed(header: bytes, level: int) -> bytes:
    return zstd.compress(header, level)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


_ERRORS: Final = ("epsilon", "error", "max_error")


def _errors(tensor: CodedTensor) -> dict[str, float]:
    """Return what the manifest says of a tensor that is not exact."""
    return {key: getattr(tensor, key) for key in _ERRORS} if tensor.epsilon else {}


def _read_errors(name: str, tensor: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the values of ``_ERRORS`` in an entry; nothing for an exact tensor."""
    given = [key for key in _ERRORS if key in tensor]
    if not given:
        return ()
    if len(given) < len(_ERRORS):
        raise ValueError(f"tensor {quoted(name)} has {' and '.join(given)} alone")
    epsilon, *errors = (_error(tensor[key]) for key in _ERRORS)
    if not 0 < epsilon <= MAX_EPSILON:
        raise ValueError(f"tensor {quoted(name)} has the impossible epsilon {epsilon:g}")
    return epsilon, *errors


def _error(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ValueError(f"{quoted(value)} is not an error")
    return float(value)  # type: ignore[arg-type]


def _size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{quoted(value)} is not a size")
    return value


def _match(pattern: re.Pattern[str], value: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(f"{quoted(value)} is not a digest")
    return value
