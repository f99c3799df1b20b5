import json

import pytest

from unweight_cli.terminal.failures import Failure, explain, report
from unweight_codecs import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("m"), 2),
        (errors.FormatError("m"), 3),
        (errors.IntegrityError("m"), 4),
        (errors.QualityGateError("m"), 5),
        (errors.ResourceError("m"), 6),
    ],
)
def test_errors_raised_on_purpose_keep_their_class_and_code(
    error: errors.UnweightError, code: int
) -> None:
    assert explain(error) == Failure(type(error).__name__, "m", "", code)


@pytest.mark.parametrize(
    ("error", "kind", "code", "words"),
    [
        (OSError(28, "No space left on device", "out"), "ResourceError", 6, "out: No space left"),
        (MemoryError(), "ResourceError", 6, "out of memory"),
        (KeyboardInterrupt(), "Interrupted", 130, "interrupted"),
        (ZeroDivisionError("division by zero"), "InternalError", 1, "ZeroDivisionError: division"),
    ],
)
def test_other_exceptions(error: BaseException, kind: str, code: int, words: str) -> None:
    failure = explain(error)
    assert (failure.kind, failure.exit_code) == (kind, code)
    assert words in failure.message


def test_the_line_says_what_and_what_to_do() -> None:
    failure = explain(errors.UsageError("out: exists already", hint="--force replaces it"))
    assert failure.line == "unweight: error: out: exists already (--force replaces it)"


def test_the_line_is_one_line_whatever_a_file_name_holds() -> None:
    failure = explain(errors.FormatError("a\nb\x1b[2J.safetensors: not a file"))
    assert failure.line == r"unweight: error: a\nb\x1b[2J.safetensors: not a file"


def test_json_goes_to_stdout_beside_the_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    report(Failure("FormatError", "bad", "do", 3), as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "error": {"type": "FormatError", "message": "bad", "hint": "do", "exit_code": 3}
    }
    assert shown.err == "unweight: error: bad (do)\n"


def test_nothing_goes_to_stdout_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    report(Failure("FormatError", "bad", "", 3), as_json=False)
    assert capsys.readouterr().out == ""
