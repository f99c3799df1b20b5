"""``unweight inspect header | tensors | stages``."""

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from unweight_cli.options import Debug, File, Json, examples, require_file
from unweight_cli.terminal.console import emit

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
    import unweight
    from unweight_cli.render.inspection import header as view

    report = unweight.inspect(path)
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
    import unweight
    from unweight_cli.render.inspection import tensors as view

    report = unweight.inspect(path)
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

    import unweight
    from unweight_cli.render.inspection import stages as view

    report = unweight.inspect_tensor(path, tensor)
    note = "The largest coded tensor; --tensor NAME shows another.\n" if tensor is None else ""
    emit(report.to_dict(), lambda: (*([Text(note)] if note else ()), *view(report)), as_json=json)
