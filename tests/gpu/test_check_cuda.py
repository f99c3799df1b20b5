"""The compile check passes what is clean, refuses warnings and spills, and reads the assembler."""

from pathlib import Path

import pytest

from scripts import check_cuda

# Of nvcc and of NVRTC, which differ in what is in front of a line.
REPORTS = {
    "nvcc": """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 37 registers, used 1 barriers, 32768 bytes smem
ptxas info    : Compile time = 83.470 ms
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Used 21 registers, used 0 barriers
""",
    "nvrtc": """ptxas info    : 36 bytes gmem, 4 bytes cmem[3]
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 21 registers, used 0 barriers
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Used 37 registers, used 1 barriers, 32768 bytes smem, 8 bytes cmem[2]
""",
}
CLEAN = """
extern "C" __global__ void clean(unsigned *out)
{
    __shared__ unsigned values[64];
    values[threadIdx.x % 64] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[63 - threadIdx.x % 64];
}
"""
WARNS = 'extern "C" __global__ void warns(int *out) { int unused; *out = 1; }\n'
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024) spills(const float *in, float *out, int n)
{
    float a[128];
#pragma unroll
    for (int i = 0; i < 128; i++)
        a[i] = in[i * 32 + threadIdx.x];
#pragma unroll 1
    for (int k = 0; k < n; k++)
#pragma unroll
        for (int i = 0; i < 128; i++)
            a[i] = a[i] * a[(i + 7) % 128] + a[(i + 31) % 128];
#pragma unroll
    for (int i = 0; i < 128; i++)
        out[i * 32 + threadIdx.x] = a[i];
}
"""


@pytest.mark.parametrize("compiler", REPORTS)
def test_reports(compiler: str) -> None:
    expected = {"first": (21, 0), "second": (37, 32768)}
    assert check_cuda.usage_of(REPORTS[compiler]) == expected


@pytest.fixture(params=["nvcc", "nvrtc"])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a compiler that is here; one target is enough."""
    name = str(request.param)
    if name not in check_cuda.compilers():
        pytest.skip(f"{name} is not installed")
    monkeypatch.setattr(check_cuda, "TARGETS", ("sm_90",))
    return name


def test_what_is_clean_passes(
    compiler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clean.cu"
    path.write_text(CLEAN)
    assert check_cuda.main(["--compiler", compiler, str(path)]) == 0
    printed = capsys.readouterr()
    name, registers, shared = printed.out.splitlines()[-1].split()
    assert (name, shared) == ("clean", "256")
    assert 0 < int(registers) < 64
    assert printed.err == ""


@pytest.mark.parametrize(
    ("source", "words"),
    [(WARNS, "was declared but never referenced"), (SPILLS, "spilled"), ("int;;(", "error")],
    ids=["warning", "spill", "syntax"],
)
def test_complaints_are_errors(
    compiler: str, source: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.cu", tmp_path / "bad.cu"
    good.write_text(CLEAN)
    bad.write_text(source)
    assert check_cuda.main(["--compiler", compiler, str(good), str(bad)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("bad for sm_90:\n")
    assert words in printed.err
    assert "ptxas info" not in printed.err
    assert "clean" in printed.out


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check_cuda, "compilers", dict)
    assert check_cuda.main([]) == 1
    assert "unweight[nvrtc]" in capsys.readouterr().err
