"""The part of CuPy that compiles and launches, played by a fake that keeps what it was asked."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

MACHINE_CODE = b"machine code"


class CompileError(Exception):
    """What CuPy raises; it is no RuntimeError."""


class FakeCupy(ModuleType):
    """The part of CuPy that compiles, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.__version__ = "14.0"
        self.compiled = list[tuple[str, tuple[str, ...]]]()
        self.loaded = list[str]()
        self.launched = list[tuple[object, ...]]()
        self.current = list[int]()
        compiler = ModuleType("cupy.cuda.compiler")
        compiler.__dict__.update(CompileException=CompileError, compile_using_nvrtc=self._compile)
        self.cuda = ModuleType("cupy.cuda")
        self.cuda.__dict__.update(
            Device=lambda number=0: FakeDevice(self, number),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=compiler,
            is_available=lambda: True,
            runtime=SimpleNamespace(
                getDeviceCount=lambda: 2,
                memGetInfo=lambda: (8 * 10**9, 10**10),
                getDeviceProperties=lambda number: {"name": f"device {number}".encode()},
                driverGetVersion=lambda: 13020,
            ),
            Stream=lambda non_blocking: SimpleNamespace(synchronize=lambda: None),
        )
        self.modules = {
            "cupy": self,
            "cupy.cuda": self.cuda,
            "cupy.cuda.compiler": compiler,
            "cupyx": ModuleType("cupyx"),
        }

    def _compile(self, source: str, options: tuple[str, ...]) -> tuple[bytes, None]:
        self.compiled.append((source, options))
        if source == "error":
            raise CompileError("k.cu(1): error: no\nmore of it")
        return MACHINE_CODE, None

    def RawModule(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(get_function=self._function, compile=lambda: self._load(path))

    def _load(self, path: str) -> None:
        """Load a file: CuPy does so when it is asked for a kernel, or to compile."""
        self.loaded.append(path)
        if Path(path).read_bytes() != MACHINE_CODE:
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")

    def _function(self, name: str) -> object:
        if name == "missing":
            raise RuntimeError("CUDA_ERROR_NOT_FOUND: named symbol not found")

        def launch(grid: object, block: object, args: object, shared_mem: int) -> None:
            assert self.current == [1]
            if name == "failing":
                raise RuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
            self.launched.append((name, grid, block, args, shared_mem))

        assert self.current == [1]
        return launch


class FakeDevice:
    compute_capability = "90"

    def __init__(self, cupy: FakeCupy, number: int) -> None:
        self._cupy, self._number = cupy, number

    def __enter__(self) -> None:
        self._cupy.current.append(self._number)

    def __exit__(self, *_: object) -> None:
        self._cupy.current.pop()
