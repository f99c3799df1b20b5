"""Everything ``doctor`` finds out, as one report."""

from dataclasses import asdict, dataclass
from typing import Any

from unweight.environment import Environment, describe_environment
from unweight_codecs import __version__
from unweight_codecs.accelerators.registry import AcceleratorStatus, list_accelerators
from unweight_codecs.kernels import KernelStatus, active_kernel, kernel_status
from unweight_codecs.selftest import selftest


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The surroundings, what is in use of them, and whether a round trip works (``problem`` "")."""

    version: str
    environment: Environment
    kernel: str
    kernels: tuple[KernelStatus, ...]
    accelerators: tuple[AcceleratorStatus, ...]
    problem: str

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as JSON-ready data."""
        return asdict(self)


def diagnose() -> Diagnosis:
    """Look around and run the self-test."""
    return Diagnosis(
        version=__version__,
        environment=describe_environment(),
        kernel=active_kernel(),
        kernels=kernel_status(),
        accelerators=list_accelerators(),
        problem=selftest(),
    )
