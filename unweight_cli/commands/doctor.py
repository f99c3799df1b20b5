"""``unweight doctor``."""

import typer

from unweight_cli.options import Debug, Json, examples
from unweight_cli.terminal.console import emit
from unweight_codecs.errors import IntegrityError

EXAMPLES = examples("unweight doctor", "unweight doctor --json > doctor.json")


def doctor(json: Json = False, debug: Debug = False) -> None:
    """Say what this installation can use and whether it works.

    Exit code 4 means that the self-test failed: do not trust results of this installation.
    """
    import unweight
    from unweight_cli.render.diagnosis import diagnosis

    found = unweight.diagnose()
    emit(found.to_dict(), lambda: diagnosis(found), as_json=json)
    if found.problem:
        raise typer.Exit(IntegrityError.exit_code)
