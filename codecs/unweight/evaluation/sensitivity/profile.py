"""The use case of ``unweight profile``: from a model and a text to a file of sensitivities."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from unweight.evaluation.extra import require_extra
from unweight.evaluation.measure.perplexity_report import WindowsReport, describe
from unweight.evaluation.model.checkpoint import GGUF, find_definition, model_files, open_checkpoint
from unweight.evaluation.model.digests import original_sha256
from unweight.evaluation.model.language_model import BEST_DEVICE, choose_device, limit_threads, load
from unweight.evaluation.model.token_windows import DEFAULT_CONTEXT, cut
from unweight.evaluation.model.tokenizer import load_tokenizer
from unweight.evaluation.sensitivity.fisher import TensorSensitivity, sensitivities
from unweight.evaluation.sensitivity.sensitivity_file import FORMAT, VERSION
from unweight.evaluation.text import read_text
from unweight.operations.progress import Progress
from unweight.output import atomic_file, check_target, write_all
from unweight_codecs import __version__
from unweight_codecs.errors import UsageError

DEFAULT_WINDOWS: Final = 16


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What to profile; ``windows`` 0 means the whole text."""

    path: Path
    calibration: Path
    output: Path
    model: Path | None = None
    context: int = DEFAULT_CONTEXT
    windows: int = DEFAULT_WINDOWS
    device: str = BEST_DEVICE
    threads: int = 0
    force: bool = False


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """A sensitivity file.

    ``models`` maps the name of each file of weights to the SHA-256 of the original file, which is
    the same for a compressed model and for what it was made of.
    """

    format: str
    version: int
    generator: str
    models: dict[str, str]
    calibration: WindowsReport
    tensors: tuple[TensorSensitivity, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what the file holds, as JSON-ready data."""
        return asdict(self)


def profile(request: ProfileRequest, progress: Progress) -> ProfileReport:
    """Measure how much each tensor matters and write that to ``request.output``.

    Raises UsageError for GGUF, whose tensors go by other names than those of the loaded model.
    """
    started = time.perf_counter()
    check_target(request.path, request.output, force=request.force)
    files = model_files(request.path)
    if GGUF in files:
        raise UsageError(
            f"{request.path}: a GGUF model cannot be profiled",
            hint="profile the safetensors it was converted from",
        )
    find_definition(request.path, request.model, None)
    text = read_text(request.calibration)
    require_extra()
    choose_device(request.device)
    limit_threads(request.threads)
    with open_checkpoint(
        request.path, request.model, threads=request.threads, progress=progress
    ) as checkpoint:
        tokenizer = load_tokenizer(checkpoint.tokenizer)
        windows = cut(text, tokenizer, request.context, request.windows)
        model = load(checkpoint, request.device)
    tensors = sensitivities(model, windows, progress)
    report = ProfileReport(
        format=FORMAT,
        version=VERSION,
        generator=f"unweight {__version__}",
        models={
            name: original_sha256(file)
            for name, file in files.items()
            if name.endswith(".safetensors")
        },
        calibration=describe(windows, tokenizer.bos_token, first=0),
        tensors=tensors,
        seconds=time.perf_counter() - started,
    )
    _write(report, request)
    return report


def _write(report: ProfileReport, request: ProfileRequest) -> None:
    data = (json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n").encode("ascii")
    with atomic_file(request.output, len(data), force=request.force) as file:
        write_all(file, memoryview(data))
