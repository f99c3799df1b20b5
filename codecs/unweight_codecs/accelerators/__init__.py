"""Where decoding and comparing run: the processor, or a device that a plugin brings."""

from unweight_codecs.accelerators.base import Accelerator, Engine, Piece, Span
from unweight_codecs.accelerators.choice import open_engine
from unweight_codecs.accelerators.cpu import CpuEngine, HostPiece

__all__ = ["Accelerator", "CpuEngine", "Engine", "HostPiece", "Piece", "Span", "open_engine"]
