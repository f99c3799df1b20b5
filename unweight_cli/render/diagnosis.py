"""What ``doctor`` found out."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from unweight.environment import Space
from unweight.operations.diagnosis import Diagnosis
from unweight.units import printable, size
from unweight_cli.render.layout import facts
from unweight_codecs.accelerators.registry import AcceleratorStatus

REFERENCE_KERNEL = "reference"


def diagnosis(found: Diagnosis) -> Iterator[RenderableType]:
    """Show everything that may explain how Unweight behaves here; the verdict comes last."""
    environment = found.environment
    yield _section("system")
    yield facts(
        (
            ("unweight", found.version),
            ("python", f"{environment.python}, {environment.executable}"),
            ("platform", environment.platform),
            ("processor", f"{environment.processor}, {environment.processors} usable"),
            ("features", " ".join(environment.cpu_features) or "none that the kernels use"),
            ("disk here", _free(environment.working)),
            ("temporary", _free(environment.temporary)),
        )
    )
    yield _section("kernels")
    yield facts(
        (kernel.name, _kernel(kernel.reason, kernel.name == found.kernel))
        for kernel in found.kernels
    )
    yield _section("accelerators")
    rows = [(each.name, _accelerator(each)) for each in found.accelerators]
    yield facts(rows or [("none", "no accelerator is registered")])
    yield _section("packages")
    versions = {**environment.versions, **environment.optional_versions}
    yield facts((name, version or "not installed") for name, version in versions.items())
    yield Text("")
    if found.kernel == REFERENCE_KERNEL:
        native = any(row.available for row in found.kernels if row.name != REFERENCE_KERNEL)
        state = "C kernels are turned off" if native else "No C kernels"
        yield Text(f"{state}: everything works, slower.", style="yellow")
    if found.problem:
        yield Text(f"self-test: {printable(found.problem)}", style="red")
    else:
        yield Text("self-test: passed, random BF16 values came back bit for bit", style="green")


def _section(name: str) -> Text:
    return Text(name, style="bold")


def _free(space: Space) -> str:
    free = "free space unknown" if space.free_bytes is None else f"{size(space.free_bytes)} free"
    return f"{free} in {printable(space.directory)}"


def _kernel(reason: str, active: bool) -> str:
    return "in use" if active else reason or "available"


def _accelerator(status: AcceleratorStatus) -> str:
    state = "available" if status.available else "not available"
    return f"{state}: {printable(status.detail)}" if status.detail else state
