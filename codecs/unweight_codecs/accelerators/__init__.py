"""Where decoding and comparing run: the processor, or a device that a plugin brings."""

from unweight_codecs.accelerators.base import Accelerator, Engine, Piece
from unweight_codecs.accelerators.choice import AUTO, no_note, open_accelerator, open_engine
from unweight_codecs.accelerators.coded_span import SPAN_CHUNKS, CodedSpan, PayloadHead
from unweight_codecs.accelerators.cpu import (
    CPU,
    CpuEngine,
    HostPiece,
    decode_on_host,
)
from unweight_codecs.accelerators.tuning import TuningReport, TuningRow

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
    "TuningReport",
    "TuningRow",
    "decode_on_host",
    "no_note",
    "open_accelerator",
    "open_engine",
]
