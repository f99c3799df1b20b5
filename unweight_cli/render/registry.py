"""The list of codecs."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from unweight.units import printable
from unweight_cli.render.layout import table
from unweight_codecs.registry import CodecInfo


def codecs(listed: Sequence[CodecInfo]) -> Iterator[RenderableType]:
    """Show the registered codecs in the order of the pipeline."""
    grid = table(("slot", "codec", "distribution", "summary"), ())
    grid.columns[-1].no_wrap = False
    previous = ""
    for codec in listed:
        slot = codec.slot if codec.slot != previous else ""
        grid.add_row(slot, *map(printable, (codec.name, codec.distribution, codec.summary)))
        previous = codec.slot
    yield grid
