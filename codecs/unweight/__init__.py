"""Model checkpoints made smaller, by default without changing a bit, and proof of it.

>>> import tempfile
>>> from pathlib import Path
>>> import numpy as np
>>> from safetensors.numpy import save_file
>>> import unweight

>>> folder = tempfile.TemporaryDirectory()
>>> model = Path(folder.name, "model.safetensors")
>>> weights = np.random.default_rng(0).normal(0, 0.02, (256, 256)).astype(np.float32)
>>> save_file({"layer.weight": weights}, model)

A checkpoint is compressed, and checked while it is written:

>>> report = unweight.compress(model)
>>> report.target_bytes < report.source_bytes, report.exact
(True, True)

It can be read as it is, tensor by tensor, or restored:

>>> with unweight.safe_open(report.target) as file:
...     print(file.keys(), np.array_equal(file.get_tensor("layer.weight"), weights))
['layer.weight'] True
>>> restored = unweight.decompress(report.target, model.with_name("restored.safetensors"))
>>> Path(restored.target).read_bytes() == model.read_bytes()
True

Errors are ``UnweightError`` and its subclasses, and name the parameter that is wrong:

>>> try:
...     unweight.verify(report.target, threads=300)
... except unweight.UsageError as error:
...     print(error)
threads must be 0 to 256, not 300
>>> folder.cleanup()

Nothing is loaded before it is used: importing this package takes no time. Commands have the same
arguments as the functions here, and more about them is in their own documentation. What a change of
weights does to a language model is measured by ``unweight.evaluation``, which needs the extra
``eval``.
"""

from typing import TYPE_CHECKING, Any, Final

from unweight_codecs import __version__

if TYPE_CHECKING:
    from unweight import evaluation
    from unweight.evaluation.compression import CompressReport
    from unweight.files import (
        bench,
        compress,
        decompress,
        inspect,
        inspect_tensor,
        verify,
    )
    from unweight.numpy import load_file
    from unweight.operations.bench import BenchReport, BenchRow
    from unweight.operations.diagnosis import Diagnosis, diagnose
    from unweight.operations.progress import Progress
    from unweight.operations.report import (
        CheckKind,
        FileReport,
        HeaderReport,
        OperationReport,
        StageReport,
        StagesReport,
        StreamReport,
        TensorReport,
    )
    from unweight.stage_settings import StageSetting
    from unweight.tensors import safe_open
    from unweight.tensors import safe_open as open  # noqa: A004 - as other libraries call it
    from unweight_codecs.errors import (
        FormatError,
        IntegrityError,
        QualityGateError,
        ResourceError,
        UnweightError,
        UsageError,
    )
    from unweight_codecs.registry import CodecInfo, list_codecs

__all__ = [
    "BenchReport",
    "BenchRow",
    "CheckKind",
    "CodecInfo",
    "CompressReport",
    "Diagnosis",
    "FileReport",
    "FormatError",
    "HeaderReport",
    "IntegrityError",
    "OperationReport",
    "Progress",
    "QualityGateError",
    "ResourceError",
    "StageReport",
    "StageSetting",
    "StagesReport",
    "StreamReport",
    "TensorReport",
    "UnweightError",
    "UsageError",
    "__version__",
    "bench",
    "compress",
    "decompress",
    "diagnose",
    "evaluation",
    "inspect",
    "inspect_tensor",
    "list_codecs",
    "load_file",
    "open",
    "safe_open",
    "verify",
]

_ERRORS: Final = "unweight_codecs.errors"
_REPORTS: Final = "unweight.operations.report"
# Where each name comes from; a name of its own there follows a colon.
_HOMES: Final = {
    "BenchReport": "unweight.operations.bench",
    "BenchRow": "unweight.operations.bench",
    "CheckKind": _REPORTS,
    "CodecInfo": "unweight_codecs.registry",
    "CompressReport": "unweight.evaluation.compression",
    "Diagnosis": "unweight.operations.diagnosis",
    "FileReport": _REPORTS,
    "FormatError": _ERRORS,
    "HeaderReport": _REPORTS,
    "IntegrityError": _ERRORS,
    "OperationReport": _REPORTS,
    "Progress": "unweight.operations.progress",
    "QualityGateError": _ERRORS,
    "ResourceError": _ERRORS,
    "StageReport": _REPORTS,
    "StageSetting": "unweight.stage_settings",
    "StagesReport": _REPORTS,
    "StreamReport": _REPORTS,
    "TensorReport": _REPORTS,
    "UnweightError": _ERRORS,
    "UsageError": _ERRORS,
    "bench": "unweight.files",
    "compress": "unweight.files",
    "decompress": "unweight.files",
    "diagnose": "unweight.operations.diagnosis",
    "inspect": "unweight.files",
    "inspect_tensor": "unweight.files",
    "list_codecs": "unweight_codecs.registry",
    "load_file": "unweight.numpy",
    "open": "unweight.tensors:safe_open",
    "safe_open": "unweight.tensors",
    "verify": "unweight.files",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - it may be anything that is exported
    """Load what is asked for (PEP 562)."""
    import importlib

    if name == "evaluation":
        return importlib.import_module("unweight.evaluation")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, own_name = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), own_name or name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return __all__
