"""Files and model directories: what the commands do, for programs.

Arguments are called as the options of the commands, and reports hold what these print with
``--json``. Paths may be text. ``progress`` is told how far the work is, ``note`` what a user should
know although all is well. Errors are those of ``unweight_codecs.errors``.
"""

from collections.abc import Callable, Iterable, Sequence

from unweight.evaluation.compression import BoundSettings, CompressReport, choose_bound
from unweight.operations import bench as benchmark
from unweight.operations.compress import compress_planned
from unweight.operations.compression_plan import CompressOptions, plan_compression
from unweight.operations.decompress import decompress as decompress_files
from unweight.operations.inspect.header import inspect_header, inspect_stages, largest_coded
from unweight.operations.progress import NoProgress, Progress
from unweight.operations.report import HeaderReport, OperationReport, StagesReport
from unweight.operations.verify import verify as verify_files
from unweight.paths import StrPath, optional_path, path_of
from unweight.stage_settings import StageSetting
from unweight_codecs.accelerators import CPU, no_note
from unweight_codecs.presets import DEFAULT, PRESETS

_SILENT = NoProgress()


def compress(
    path: StrPath,
    output: StrPath | None = None,
    *,
    preset: str = DEFAULT,
    recipe: StrPath | None = None,
    stages: Iterable[StageSetting | str] = (),
    epsilon: float | str = 0.0,
    sensitivity: StrPath | None = None,
    max_ppl_delta: float | None = None,
    text: StrPath | None = None,
    model: StrPath | None = None,
    windows: int | None = None,
    device: str | None = None,
    threads: int = 0,
    force: bool = False,
    progress: Progress = _SILENT,
) -> CompressReport:
    """Compress a checkpoint, bit-exactly unless an error is allowed.

    Every tensor is decoded again and compared before the output gets its name.

    Args:
        path: A safetensors or GGUF file, a model directory or a ``*.safetensors.index.json``.
        output: Where to write; beside the input unless given.
        preset: ``"fast"``, ``"default"`` or ``"max"``; ``"stored"`` leaves tensors without a rule
            as they are.
        recipe: A TOML file that says which tensors get which pipeline.
        stages: Settings of stages on top of the preset; text is taken as ``StageSetting.parse``
            takes it.
        epsilon: Relative error allowed in matrices of floats, in the Frobenius norm, from 0 to 1;
            ``"auto"`` searches the largest one that changes the perplexity by at most
            ``max_ppl_delta``, which needs the extra ``eval``.
        sensitivity: A file that ``unweight.evaluation.profile`` wrote. The bound is then that of
            all matrices together, and each gets one of its own.
        max_ppl_delta: The largest change of perplexity to accept, above 0.
        text: A file with the text to measure perplexity on; one is built in.
        model: A directory with config.json and tokenizer, if they are not in or beside ``path``.
        windows: How many windows of the text to measure; all unless given.
        device: Where the model runs: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; the best there is
            unless given.
        threads: Worker threads; 0 means as many as the process may use.
        force: Replace an existing output.
        progress: Told how far the work is.

    Returns:
        What was done, how well each tensor was compressed, and how an error bound was found or
        shared out.

    Raises:
        UsageError: Arguments that make no sense, or that would have no effect.
        FormatError: Not a supported file, or already compressed.
        IntegrityError: The input changed, or what was written does not decode to it.
        QualityGateError: No error bound is within ``max_ppl_delta``.
        ResourceError: No space, no permission, or a missing package.
    """
    settings = BoundSettings(
        epsilon=epsilon,
        sensitivity=optional_path(sensitivity, "sensitivity"),
        max_ppl_delta=max_ppl_delta,
        text=optional_path(text, "text"),
        model=optional_path(model, "model"),
        windows=windows,
        device=device,
    )
    options = CompressOptions(
        preset=preset,
        recipe=optional_path(recipe, "recipe"),
        stages=tuple(stages),
        threads=threads,
        force=force,
        epsilon=settings.first_epsilon(),
    )
    # Whatever is wrong with these is found before anything takes long.
    plan = plan_compression(path_of(path, "path"), optional_path(output, "output"), options)
    choice = choose_bound(plan, settings, progress)
    report = compress_planned(choice.plan, progress)
    return CompressReport.of(report, choice)


def decompress(
    path: StrPath,
    output: StrPath | None = None,
    *,
    device: str = CPU,
    threads: int = 0,
    force: bool = False,
    progress: Progress = _SILENT,
    note: Callable[[str], None] = no_note,
) -> OperationReport:
    """Restore the original, byte for byte, or what was kept within an error bound.

    Every digest is checked before the output gets its name.

    Args:
        path: A compressed file, a directory with some, or the index of compressed shards.
        output: Where to write; beside the input unless given.
        device: What decodes: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"`` for a device if
            there is one.
        threads: Worker threads; 0 means as many as the process may use.
        force: Replace an existing output.
        progress: Told how far the work is.
        note: Told, for ``device="auto"``, why no device is used.

    Raises:
        UsageError: Arguments that make no sense.
        FormatError: Nothing there was compressed by Unweight.
        IntegrityError: The file is damaged.
        ResourceError: No space, no permission, or no such device.
    """
    return decompress_files(
        path_of(path, "path"),
        optional_path(output, "output"),
        threads=threads,
        force=force,
        progress=progress,
        device=device,
        note=note,
    )


def verify(
    path: StrPath,
    against: StrPath | None = None,
    *,
    device: str = CPU,
    threads: int = 0,
    progress: Progress = _SILENT,
    note: Callable[[str], None] = no_note,
) -> OperationReport:
    """Decode everything and compare every checksum and digest; nothing is written.

    What became of the model's predictions is measured by ``unweight.evaluation.check_perplexity``.

    Args:
        path: A compressed file, a directory with some, or the index of compressed shards.
        against: The original, to compare every bit as well, or the error where one is allowed.
        device: What decodes and compares; see ``decompress``.
        threads: Worker threads; 0 means as many as the process may use.
        progress: Told how far the work is.
        note: Told, for ``device="auto"``, why no device is used.

    Raises:
        UsageError: Arguments that make no sense.
        FormatError: Nothing there was compressed by Unweight.
        IntegrityError: The file is damaged, or is not what was made of ``against``.
        QualityGateError: An error is above its bound.
        ResourceError: Something cannot be read, or there is no such device.
    """
    return verify_files(
        path_of(path, "path"),
        optional_path(against, "against"),
        threads=threads,
        progress=progress,
        device=device,
        note=note,
    )


def inspect(path: StrPath) -> HeaderReport:
    """Describe one container file, compressed or not: its header and its tensors.

    Raises FormatError for other files, IntegrityError for a damaged header.
    """
    return inspect_header(path_of(path, "path"))


def inspect_tensor(path: StrPath, tensor: str | None = None) -> StagesReport:
    """Decode one coded tensor, the largest unless it is named, and describe what codes it.

    Raises UsageError where there is no such tensor, FormatError for one that is stored unchanged.
    """
    file = path_of(path, "path")
    return inspect_stages(file, largest_coded(file) if tensor is None else tensor)


def bench(
    path: StrPath,
    *,
    presets: Sequence[str] = tuple(PRESETS),
    repeats: int = 3,
    device: str = CPU,
    progress: Progress = _SILENT,
    note: Callable[[str], None] = no_note,
) -> benchmark.BenchReport:
    """Measure size and speed of presets on a checkpoint, in memory.

    Args:
        path: A file or a model directory that is not compressed.
        presets: Names of the presets to measure.
        repeats: Runs to take the median of.
        device: Another device whose decoding is measured as well; see ``decompress``.
        progress: Told how far the work is.
        note: Told, for ``device="auto"``, why no device is used.

    Raises:
        UsageError: Arguments that make no sense, or more tensors than are measured in memory.
    """
    return benchmark.bench(
        path_of(path, "path"),
        tuple(presets),
        repeats=repeats,
        progress=progress,
        device=device,
        note=note,
    )
