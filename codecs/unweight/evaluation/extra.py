"""The optional packages that evaluation needs: asked for early, kept offline and silent."""

import importlib.util
import os
from typing import Final

from unweight_codecs.errors import ResourceError

# accelerate and gguf are what transformers reads GGUF files with.
PACKAGES: Final = ("torch", "transformers", "accelerate", "gguf")
INSTALL: Final = "pip install 'unweight[eval]'"
OFFLINE: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def require_packages(purpose: str, names: tuple[str, ...]) -> None:
    """Raise ResourceError unless the packages that ``purpose`` needs are installed."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ResourceError(f"{purpose} needs {', '.join(missing)}", hint=INSTALL)


def require_extra() -> None:
    """Make the packages ready for use; raises ResourceError when one is missing or broken.

    From here on nothing in this process reaches a network through them.
    """
    require_packages("perplexity", PACKAGES)
    os.environ.update(OFFLINE)
    try:
        import torch  # noqa: F401 - a broken installation shows here
        from transformers.utils import logging
    except (ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ResourceError(
            f"torch or transformers cannot be imported: {reason}", hint=INSTALL
        ) from error
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
