"""What a device, its driver or CuPy raises, as errors of this project."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from unweight_codecs.errors import Parameter, Phrase, ResourceError

ON_PROCESSOR: Final = Phrase("try ", Parameter("device", "cpu"))


@contextmanager
def device_errors() -> Iterator[None]:
    """Turn what CuPy raises into a ResourceError of one line."""
    try:
        yield
    except MemoryError as error:  # CuPy's OutOfMemoryError is one
        raise ResourceError(
            f"the device has too little memory: {line_of(error)}",
            hint=Phrase(Parameter("device", "cpu"), " needs none of it"),
        ) from error
    except (RuntimeError, OSError, ImportError) as error:  # of the runtime, the driver, NVRTC
        raise ResourceError(f"the device fails: {line_of(error)}", hint=ON_PROCESSOR) from error


def line_of(error: BaseException) -> str:
    """Return what an exception says, in one short line."""
    return " ".join(str(error).split())[:160] or type(error).__name__
