"""What the features cost in time and memory, as ratios measured in one run: `python -m benchmarks`."""
