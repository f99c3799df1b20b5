"""What ``doctor`` says of an installation."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from unweight.environment import describe_environment
from unweight.operations import diagnosis as diagnosis_module
from unweight.operations.diagnosis import Diagnosis
from unweight_cli.app import run
from unweight_cli.render.diagnosis import diagnosis
from unweight_codecs.accelerators.registry import AcceleratorStatus
from unweight_codecs.kernels import KernelStatus

REFERENCE = KernelStatus("reference", True, "")


@pytest.fixture
def healthy() -> Diagnosis:
    return Diagnosis(
        version="9.8.7",
        environment=describe_environment(),
        kernel="avx2",
        kernels=(
            KernelStatus("avx512", False, "this processor lacks it"),
            KernelStatus("avx2", True, ""),
            REFERENCE,
        ),
        accelerators=(AcceleratorStatus("cuda", False, "CuPy is not installed"),),
        problem="",
    )


def shown(found: Diagnosis) -> str:
    console = Console(file=io.StringIO(), width=200, markup=False, highlight=False)
    with console.capture() as captured:
        for part in diagnosis(found):
            console.print(part)
    return captured.get()


def test_a_healthy_installation(healthy: Diagnosis) -> None:
    text = shown(healthy)
    for fact in ("9.8.7", "this processor lacks it", "in use", "CuPy is not installed", "numpy"):
        assert fact in text
    assert "self-test: passed" in text
    assert "slower" not in text


def test_without_c_kernels(healthy: Diagnosis) -> None:
    bare = replace(healthy, kernel="reference", kernels=(REFERENCE,), accelerators=())
    text = shown(bare)
    assert "No C kernels: everything works, slower." in text
    assert "no accelerator is registered" in text


def test_with_c_kernels_turned_off(healthy: Diagnosis) -> None:
    assert "turned off: everything works, slower." in shown(replace(healthy, kernel="reference"))


def test_a_failed_self_test_is_shown_and_is_an_integrity_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnosis_module, "selftest", lambda: "preset fast: other bytes came back")
    assert run(["doctor"]) == 4
    assert "self-test: preset fast: other bytes came back" in capsys.readouterr().out


def test_an_unknown_kernel_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNWEIGHT_KERNEL", "warp")
    assert run(["doctor"]) == 2
    assert "warp" in capsys.readouterr().err
