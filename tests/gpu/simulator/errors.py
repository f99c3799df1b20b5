"""What the simulator has to complain about."""


class SimulatorError(RuntimeError):
    """Any complaint."""


class CompileError(SimulatorError):
    """The compiler refused the source; the message is the compiler's."""


class LaunchError(SimulatorError):
    """The launch does not fit the kernel or the device; nothing has run."""


class KernelFault(SimulatorError):
    """A kernel did what CUDA forbids or leaves undefined; buffers hold what it wrote until then."""
