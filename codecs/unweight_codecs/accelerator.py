"""What an accelerator must offer. They register in the group ``unweight.accelerators``."""

from typing import Protocol


class Accelerator(Protocol):
    """A device that can take over work from the CPU."""

    name: str

    def probe(self) -> tuple[bool, str]:
        """Return whether the device can be used here, and a line of detail or why not."""
        ...
