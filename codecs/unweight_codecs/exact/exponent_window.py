"""Outlier detection without loss: exponents outside a dense window become escapes."""

import struct
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unweight_codecs.codec import Mode, Stage, TensorView, check_setting
from unweight_codecs.errors import IntegrityError
from unweight_codecs.model import TensorModel
from unweight_codecs.span import Span

AUTO = -1
MAX_BASE = (1 << 11) - 1  # of the widest exponent, that of F64
WINDOW = 15  # with the escape, 16 groups of symbols
_SECTION = struct.Struct("<HBx")


@dataclass(frozen=True)
class ExponentWindow(Stage):
    """Puts the window where it holds the most weights.

    A format of at most 16 exponents needs no escape: its window is the whole range.

    Attributes:
        base: First exponent of the window; -1 finds it.
    """

    base: int = AUTO

    name: ClassVar[str] = "exponent_window"
    slot: ClassVar[str] = "outlier"
    mode: ClassVar[Mode | None] = "exact"

    def __post_init__(self) -> None:
        check_setting(self, "base", self.base, AUTO, MAX_BASE)

    def fit(self, tensor: TensorView, model: TensorModel, epsilon: float) -> None:
        """Choose the window from the exponent histogram."""
        layout = tensor.layout
        if not layout.is_float:
            return
        exponents = 1 << layout.exponent_bits
        if exponents <= WINDOW + 1:
            model.base, model.window = 0, exponents
            return
        model.window = WINDOW
        last = exponents - WINDOW
        if self.base >= 0:
            model.base = min(self.base, last)
            return
        counts = tensor.histograms.sum(axis=0).reshape(exponents, -1).sum(axis=1)
        sums = np.concatenate([[0], np.cumsum(counts)])
        model.base = int(np.argmax(sums[WINDOW:] - sums[:-WINDOW]))

    def write(self, model: TensorModel) -> bytes:
        """Write u16 base, u8 window and a zero byte; nothing for words without an exponent."""
        return _SECTION.pack(model.base, model.window) if model.layout.is_float else b""

    def read(self, section: bytes, model: TensorModel) -> None:
        """Restore base and window."""
        if not model.layout.is_float:
            if section:
                raise IntegrityError(
                    "the outlier section of a tensor without exponents is not empty"
                )
            return
        if len(section) != _SECTION.size:
            raise IntegrityError("the outlier section has a wrong size")
        model.base, model.window = _SECTION.unpack(section)
        exponents = 1 << model.layout.exponent_bits
        expected = exponents if exponents <= WINDOW + 1 else WINDOW
        if model.window != expected or model.base + model.window > exponents or section[3]:
            raise IntegrityError("the exponent window does not fit the dtype")

    def encode(self, span: Span, model: TensorModel) -> None:
        """``words`` → ``bin`` (exponent in the window, or the escape), ``escape``, ``fraction``.

        The fraction is the sign above the whole mantissa, one word per weight.
        """
        layout = model.layout
        if not layout.is_float:
            return
        words = span.words.view(f"<u{layout.word_bytes}")
        mantissa_bits = words.dtype.type(layout.mantissa_bits)
        mask = words.dtype.type((1 << layout.exponent_bits) - 1)
        exponent = (words >> mantissa_bits & mask).astype(np.int32)
        bins = exponent - model.base
        escaped = (bins < 0) | (bins >= model.window)
        span.streams["bin"] = np.where(escaped, model.window, bins).astype(np.uint8)
        escape_type = f"<u{model.split.escape_bytes}"
        span.streams["escape"] = exponent[escaped].astype(escape_type).view(np.uint8)
        sign = words >> words.dtype.type(layout.exponent_bits + layout.mantissa_bits)
        low = words & words.dtype.type((1 << layout.mantissa_bits) - 1)
        span.streams["fraction"] = (sign << mantissa_bits | low).view(np.uint8)

    def decode(self, span: Span, model: TensorModel) -> None:
        """Undo ``encode``."""
        layout = model.layout
        if not layout.is_float:
            return
        fraction = span.streams["fraction"].view(f"<u{layout.word_bytes}")
        escapes = span.streams["escape"].view(f"<u{model.split.escape_bytes}")
        bins = span.streams["bin"]
        escaped = bins >= model.window
        if int(escaped.sum()) != len(escapes):
            raise IntegrityError("a chunk has another number of escapes than its symbols ask for")
        exponent = bins.astype(np.uint64) + np.uint64(model.base)
        exponent[escaped] = escapes
        exponent &= np.uint64((1 << layout.exponent_bits) - 1)  # as the kernels do, if damaged
        kind = fraction.dtype.type
        low = fraction & kind((1 << layout.mantissa_bits) - 1)
        sign = fraction >> kind(layout.mantissa_bits) & kind(1)
        words = sign << kind(layout.exponent_bits + layout.mantissa_bits)
        words |= exponent.astype(fraction.dtype) << kind(layout.mantissa_bits) | low
        span.words[:] = words.view(np.uint8)
