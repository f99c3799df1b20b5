"""``unweight codecs``."""

from dataclasses import asdict

from unweight_cli.options import Debug, Json, examples
from unweight_cli.terminal.console import emit

EXAMPLES = examples("unweight codecs", "unweight codecs --json | jq -r '.codecs[].name'")


def codecs(json: Json = False, debug: Debug = False) -> None:
    """List the codecs that pipelines are made of and their packages."""
    import unweight
    from unweight_cli.render.registry import codecs as view

    listed = unweight.list_codecs()
    emit({"codecs": [asdict(codec) for codec in listed]}, lambda: view(listed), as_json=json)
