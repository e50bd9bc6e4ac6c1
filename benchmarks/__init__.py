"""Speed of fuser compared with the alternatives of a user: `python -m benchmarks --help`."""
