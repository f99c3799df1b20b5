"""Where decoding and comparing run: the processor, or a device that a plugin brings."""

from unweight_codecs.accelerators.base import Accelerator, Engine, Piece
from unweight_codecs.accelerators.choice import AUTO, find_accelerator, no_note, open_engine
from unweight_codecs.accelerators.coded_span import SPAN_CHUNKS, CodedSpan, PayloadHead
from unweight_codecs.accelerators.cpu import (
    CPU,
    CpuEngine,
    HostPiece,
    decode_on_host,
)

__all__ = [
    "AUTO",
    "CPU",
    "SPAN_CHUNKS",
    "Accelerator",
    "CodedSpan",
    "CpuEngine",
    "Engine",
    "HostPiece",
    "PayloadHead",
    "Piece",
    "decode_on_host",
    "find_accelerator",
    "no_note",
    "open_engine",
]
