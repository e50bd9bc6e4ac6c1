"""Speed of fuser against what users would pick instead: `python -m benchmarks --help`."""
