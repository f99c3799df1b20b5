"""Files that users of other tools have reported, where the checkout has them beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"


def reported_cases(*prefixes: str) -> list[Any]:
    """Return parameters, one for each case whose id has one of the prefixes; none is a skip."""
    index = CASES / "INDEX.json"
    if not index.is_file():
        reason = "no case folder beside the checkout"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    cases = json.loads(index.read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["id"].startswith(prefixes)]
