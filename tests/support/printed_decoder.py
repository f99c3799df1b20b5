"""The decoder that the specification prints, as a module."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from scripts import format_example


def load(folder: Path) -> ModuleType:
    """Write the program of FORMAT.md into ``folder`` and import it."""
    text = format_example.SPECIFICATION.read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, flags=re.S | re.M)
    assert len(programs) == 1
    path = folder / "decoder.py"
    path.write_text(programs[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("decoder", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
