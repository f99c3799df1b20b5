"""``unweight verify``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unweight_cli.options import (
    Checkpoint,
    Context,
    Debug,
    EvaluationText,
    Json,
    ModelDirectory,
    Quiet,
    Threads,
    VerifyDevice,
    Windows,
    examples,
    input_path,
    require_exists,
)
from unweight_cli.terminal.console import emit
from unweight_cli.terminal.failures import Failure
from unweight_cli.terminal.progress import progress_bars
from unweight_cli.terminal.streams import complain, note
from unweight_codecs.errors import QualityGateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from unweight.evaluation.measure.perplexity_report import PerplexityReport
    from unweight.operations.report import OperationReport

EXAMPLES = examples(
    "unweight verify model.unweight.safetensors",
    "unweight verify model.unweight.safetensors --against model.safetensors",
    "unweight verify checkpoint.unweight/ --quiet && rsync -a checkpoint.unweight/ host:models/",
    "unweight verify checkpoint.unweight/ --perplexity --against checkpoint/ --max-delta 0.01",
)


def verify(
    path: Checkpoint,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="ORIGINAL", parser=input_path, help="Also compare with this file or directory."
        ),
    ] = None,
    perplexity: Annotated[
        bool,
        typer.Option(
            "--perplexity", show_default=False, help="Also measure what it does to the model."
        ),
    ] = False,
    text: EvaluationText = None,
    model: ModelDirectory = None,
    max_delta: Annotated[
        float | None,
        typer.Option(
            metavar="D",
            help="Largest change of perplexity against ORIGINAL, up or down; 0.01 unless given.",
        ),
    ] = None,
    context: Context = None,
    windows: Windows = None,
    device: VerifyDevice = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", show_default=False, help="Measure even what is bit-exact by proof."
        ),
    ] = False,
    threads: Threads = 0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that a checkpoint restores to what it must, without writing it.

    Everything is decoded and every checksum is compared, up to the SHA-256 of the whole file. Exit
    code 4 means that some bytes are not what they must be. With --against, what was compressed
    within an error bound is measured: exit code 5 means that the bound does not hold.

    With --perplexity, exit code 5 means that the restored weights are worse at predicting text than
    allowed. Weights that are bit-exact differ by nothing, so that they are measured on request
    only. This needs torch and transformers: pip install 'unweight[eval]'.
    """
    require_exists(path)
    for other in (against, text, model):
        if other is not None:
            require_exists(other)
    settings = {
        "text": text,
        "model": model,
        "max_delta": max_delta,
        "context": context,
        "windows": windows,
        "measure": measure or None,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    if given and not perplexity:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{names}: has no effect without --perplexity")
    host = Host(threads, device, quiet)
    if perplexity:
        report, found = _with_perplexity(path, against, given, host)
    else:
        report, found = _verified(path, against, host), None
    document: dict[str, Any] = {
        "operation": "verify",
        "source": str(path),
        "target": str(against or ""),
    }
    if report is not None:
        document |= report.to_dict()
    if found is not None:
        document["perplexity"] = found.to_dict()
    emit(document, lambda: _view(report, found, path, against), as_json=json, quiet=quiet)
    if found is not None and found.failure:
        failure = Failure(
            QualityGateError.__name__, f"{path}: {found.failure}", "", QualityGateError.exit_code
        )
        complain(failure.line)
        raise typer.Exit(failure.exit_code)


@dataclass(frozen=True, slots=True)
class Host:
    """What the work may use, and whether it may speak of it."""

    threads: int
    device: str | None
    quiet: bool


def _verified(path: Path, against: Path | None, host: Host) -> "OperationReport":
    import unweight
    from unweight_codecs.accelerators import CPU, no_note

    with progress_bars(quiet=host.quiet) as progress:
        return unweight.verify(
            path,
            against,
            threads=host.threads,
            progress=progress,
            device=CPU if host.device is None else host.device,
            note=no_note if host.quiet else note,
        )


def _with_perplexity(
    path: Path, against: Path | None, settings: dict[str, Any], host: Host
) -> "tuple[OperationReport | None, PerplexityReport]":
    """Verify what is compressed, then evaluate; a plain checkpoint has nothing to verify."""
    from unweight.evaluation.measure.perplexity_check import PerplexityRequest, evaluate, plan
    from unweight.evaluation.model.checkpoint import archives_of

    if host.device is not None:
        settings = settings | {"device": host.device}
    planned = plan(PerplexityRequest(path, against, threads=host.threads, **settings))
    report = None
    if planned.is_compressed:
        # An original that is compressed itself can be evaluated, but not compared bit by bit.
        original = None if against is None or archives_of(against) else against
        report = _verified(path, original, host)
    with progress_bars(quiet=host.quiet) as progress:
        return report, evaluate(planned, progress)


def _view(
    report: "OperationReport | None",
    found: "PerplexityReport | None",
    path: Path,
    against: Path | None,
) -> "Iterator[RenderableType]":
    from unweight_cli.render.evaluation import perplexity
    from unweight_cli.render.operations import verified

    if report is not None:
        yield from verified(report)
    if found is not None:
        yield from perplexity(found, str(path), str(against or ""))
