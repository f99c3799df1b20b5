"""The program: ``unweight`` and ``python -m unweight_cli``.

Until ``main`` has installed its handlers, a signal ends the program with Python's own traceback. So
nothing that takes long to load is imported before that, not even ``typing``.
"""

import sys

from unweight_cli.terminal import interruption, streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Run the command line of this process and end the process with its exit code."""
    try:
        interruption.install()
        streams.prepare()
        from unweight_cli.app import run

        code = run(sys.argv[1:])
        interruption.ignore()
    except BaseException:
        received = interruption.received()
        if received is None:
            raise
        streams.complain(f"unweight: error: {received.word}")
        code = received.exit_code
        interruption.ignore()
    streams.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
