"""``python -m benchmarks``."""

import os
import sys

# Math libraries read these when they are loaded, so they are set before the first import of one.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"


if __name__ == "__main__":
    from benchmarks.run import main

    sys.exit(main())
