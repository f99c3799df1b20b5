"""The program: ``unweight`` and ``python -m unweight_cli``."""

import sys
from typing import NoReturn

from unweight_cli import interruption, streams


def main() -> NoReturn:
    """Run the command line of this process and end the process with its exit code."""
    try:
        interruption.install()
        streams.prepare()
        # Loading takes a while, and a signal that comes meanwhile must find its handler.
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
