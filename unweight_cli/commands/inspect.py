"""``unweight inspect header | tensors | stages``."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from unweight_cli.options import Debug, File, Json, examples, require_file
from unweight_cli.terminal.console import emit
from unweight_codecs.errors import UsageError

if TYPE_CHECKING:
    from unweight.operations.report import TensorReport

HEADER_EXAMPLES = examples(
    "unweight inspect header model.unweight.safetensors",
    "unweight inspect header model.unweight.safetensors --json | jq -r .source_sha256",
)
TENSORS_EXAMPLES = examples(
    "unweight inspect tensors model.unweight.safetensors",
    "unweight inspect tensors model.unweight.safetensors --sort ratio --limit 0",
)
STAGES_EXAMPLES = examples(
    "unweight inspect stages model.unweight.safetensors",
    "unweight inspect stages model.unweight.safetensors --tensor model.embed_tokens.weight",
)


class Order(StrEnum):
    """What ``inspect tensors`` sorts by."""

    SIZE = "size"
    NAME = "name"
    RATIO = "ratio"


_SORT_KEYS: Final[dict[Order, Callable[["TensorReport"], Any]]] = {
    Order.SIZE: lambda tensor: (-tensor.source_bytes, tensor.name),
    Order.NAME: lambda tensor: tensor.name,
    Order.RATIO: lambda tensor: (tensor.coded_bytes / max(tensor.source_bytes, 1), tensor.name),
}


def header(path: File, json: Json = False, debug: Debug = False) -> None:
    """Show what a file is: container, digest, mode, pipelines, sizes."""
    require_file(path)
    from unweight.operations.inspect.header import inspect_header
    from unweight_cli.render.inspection import header as view

    report = inspect_header(path)
    emit(report.to_dict(), lambda: view(report), as_json=json)


def tensors(
    path: File,
    sort: Annotated[
        Order, typer.Option(help="Largest first, by name, or smallest ratio first.")
    ] = Order.SIZE,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show at most N tensors; 0 shows all.")
    ] = 20,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the tensors with their sizes before and after."""
    require_file(path)
    from unweight.operations.inspect.header import inspect_header
    from unweight_cli.render.inspection import tensors as view

    report = inspect_header(path)
    ordered = sorted(report.tensors, key=_SORT_KEYS[sort])
    listed = ordered[: limit or None]
    document = {"path": report.path, "total": len(ordered), "tensors": [asdict(t) for t in listed]}
    emit(document, lambda: view(listed, len(ordered)), as_json=json)


def stages(
    path: File,
    tensor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The tensor to look into; the largest without it."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what each stage did to one tensor, and its symbols."""
    require_file(path)
    from rich.text import Text

    from unweight.operations.inspect.header import inspect_header, inspect_stages
    from unweight_cli.render.inspection import stages as view

    chosen = tensor if tensor is not None else _largest_coded(path, inspect_header(path).tensors)
    report = inspect_stages(path, chosen)
    note = "The largest coded tensor; --tensor NAME shows another.\n" if tensor is None else ""
    emit(report.to_dict(), lambda: (*([Text(note)] if note else ()), *view(report)), as_json=json)


def _largest_coded(path: Path, tensors: "Sequence[TensorReport]") -> str:
    from unweight.operations.tensor_rows import STORED

    coded = [tensor for tensor in tensors if tensor.pipeline != STORED]
    if not coded:
        raise UsageError(f"{path}: no tensor is coded", hint="see 'unweight inspect tensors'")
    return max(coded, key=lambda tensor: tensor.source_bytes).name
