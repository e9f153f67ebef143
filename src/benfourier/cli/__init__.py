"""The command line: one verb per file, thin: parse, call, print."""
