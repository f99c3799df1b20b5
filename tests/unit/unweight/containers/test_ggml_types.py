"""The table of GGML types against that of the gguf package."""

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tests.support.gguf_files import unit_bytes
from unweight.containers.gguf.ggml_types import GGML_TYPES, ggml_type
from unweight_codecs.errors import FormatError


@pytest.mark.parametrize("peer", GGMLQuantizationType, ids=lambda peer: peer.name)
def test_type_is_as_the_reference_has_it(peer: GGMLQuantizationType) -> None:
    entry = GGML_TYPES[peer.value]
    assert (entry.name, entry.block_elements, unit_bytes(entry)) == (
        peer.name,
        *GGML_QUANT_SIZES[peer],
    )


def test_ids_and_names_are_used_once() -> None:
    assert all(entry.ggml_id == number for number, entry in GGML_TYPES.items())
    names = [entry.name for entry in GGML_TYPES.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("number", [4, 5, 36, 38, 43, 200, 2**32 - 1])
def test_unknown_type_is_named(number: int) -> None:
    with pytest.raises(FormatError, match=f"unknown GGML type {number} .*block size"):
        ggml_type(number)


@pytest.mark.parametrize(
    ("name", "shape", "nbytes"),
    [
        ("F32", (), 4),
        ("BF16", (3, 5), 30),
        ("Q4_0", (64,), 36),
        ("Q4_K", (2, 3, 512), 1728),
        ("Q6_K", (7, 0), 0),
        ("Q6_K", (0, 256), 0),
        ("I8", (2**40,), 2**40),
    ],
)
def test_bytes_of_a_shape(name: str, shape: tuple[int, ...], nbytes: int) -> None:
    (entry,) = (entry for entry in GGML_TYPES.values() if entry.name == name)
    assert entry.nbytes(shape) == nbytes


@pytest.mark.parametrize(("number", "shape"), [(2, ()), (2, (48,)), (12, (256, 32)), (41, (64,))])
def test_row_that_ends_inside_a_block(number: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="are not whole"):
        ggml_type(number).nbytes(shape)


@pytest.mark.parametrize(
    "shape", [(2**60,), (2**62,), (2**32, 2**32), (2**63 - 1,) * 4, (2**62, 2**62, 0)]
)
def test_size_that_overflows(shape: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="overflows"):
        ggml_type(28).nbytes(shape)
