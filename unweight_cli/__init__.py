"""The command line of Unweight: it parses, calls an operation and shows what came of it."""
