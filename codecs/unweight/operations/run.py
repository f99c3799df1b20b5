"""One run of an operation, from its start to its report."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unweight.operations.report import CheckKind, FileReport, OperationReport
from unweight_codecs.accelerators import CPU
from unweight_codecs.kernels import active_kernel


@dataclass(frozen=True, slots=True)
class OperationRun:
    """An operation under way; its clocks start when it is made.

    Attributes:
        operation: ``"compress"``, ``"decompress"`` or ``"verify"``.
        source: What it works on.
        started: When it started, by a clock in seconds.
        cpu_started: Seconds of processor time that the process had taken by then.
    """

    operation: str
    source: Path
    started: float = field(default_factory=time.perf_counter)
    cpu_started: float = field(default_factory=time.process_time)

    def report(
        self,
        target: Path | None,
        files: Sequence[FileReport],
        *,
        carried_files: int,
        carried_bytes: int,
        source_bytes: int,
        target_bytes: int,
        threads: int,
        checked: CheckKind,
        device: str = CPU,
        notes: tuple[str, ...] = (),
    ) -> OperationReport:
        """Return what was done up to now; arguments are the fields of the report."""
        bounded = [tensor for file in files for tensor in file.tensors if tensor.epsilon]
        return OperationReport(
            operation=self.operation,
            source=str(self.source),
            target=str(target or ""),
            files=tuple(files),
            carried_files=carried_files,
            carried_bytes=carried_bytes,
            source_bytes=source_bytes,
            target_bytes=target_bytes,
            seconds=time.perf_counter() - self.started,
            cpu_seconds=time.process_time() - self.cpu_started,
            threads=threads,
            kernel=active_kernel(),
            checked=checked,
            exact=not bounded,
            bounded_tensors=len(bounded),
            max_epsilon=max((tensor.epsilon for tensor in bounded), default=0.0),
            worst_error=max((tensor.error for tensor in bounded), default=0.0),
            device=device,
            notes=notes,
        )
