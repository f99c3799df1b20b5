"""The command line: its wiring, and the one place where exceptions become exit codes."""

import sys
from typing import Annotated

import typer

from unweight_cli.commands import (
    bench,
    codecs,
    compare,
    compress,
    decompress,
    doctor,
    inspect,
    profile,
    tune,
    verify,
)
from unweight_cli.options import examples
from unweight_cli.terminal import interruption
from unweight_cli.terminal.console import write
from unweight_cli.terminal.failures import INTERRUPTED_EXIT, explain, report
from unweight_codecs import __version__

EXAMPLES = examples(
    "unweight compress model.safetensors",
    "unweight verify model.unweight.safetensors",
    "unweight decompress model.unweight.safetensors",
)

app = typer.Typer(
    epilog=EXAMPLES,
    invoke_without_command=True,
    rich_markup_mode=None,  # plain help starts three times as fast
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
inspection = typer.Typer(
    help="Look into a file: its header, tensors, or one tensor's stages.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

app.command(epilog=compress.EXAMPLES)(compress.compress)
app.command(epilog=decompress.EXAMPLES)(decompress.decompress)
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.add_typer(inspection, name="inspect")
app.command(epilog=bench.EXAMPLES)(bench.bench)
app.command(epilog=profile.EXAMPLES)(profile.profile)
app.command(epilog=compare.EXAMPLES)(compare.compare)
app.command(epilog=tune.EXAMPLES)(tune.tune)
app.command(epilog=codecs.EXAMPLES)(codecs.codecs)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
inspection.command(epilog=inspect.HEADER_EXAMPLES)(inspect.header)
inspection.command(epilog=inspect.TENSORS_EXAMPLES)(inspect.tensors)
inspection.command(epilog=inspect.STAGES_EXAMPLES)(inspect.stages)


def _print_version(wanted: bool) -> None:
    if wanted:
        write(f"unweight {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            show_default=False,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Make model checkpoints smaller, by default without changing a bit, and prove it."""
    _help_without_command(context)


@inspection.callback()
def _inspection(context: typer.Context) -> None:
    _help_without_command(context)


def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        write(context.get_help() + "\n")


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. Errors are reported, not raised."""
    # Read here and not from the parsed options, so that they also serve a line that does not parse.
    flags = set(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        code = app(arguments, prog_name="unweight", standalone_mode=False)
    except (Exception, KeyboardInterrupt, interruption.Interruption) as raised:
        # Some libraries raise an error of their own from an interruption.
        error = interruption.received() or raised
        if "--debug" in flags:
            sys.excepthook(type(raised), raised, raised.__traceback__)
        return _report(error, flags)
    if code == INTERRUPTED_EXIT:  # typer has caught the interrupt and hands over this number
        return _report(KeyboardInterrupt(), flags)
    return code if isinstance(code, int) else 0


def _report(error: BaseException, flags: set[str]) -> int:
    failure = explain(error)
    report(failure, as_json="--json" in flags)
    return failure.exit_code
