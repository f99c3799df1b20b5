"""``python -m unweight_cli``: the same program as the ``unweight`` console script."""

from unweight_cli.app import main

main()
