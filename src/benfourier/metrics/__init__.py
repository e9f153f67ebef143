"""Metrics of detectors: rankings, intervals, thresholds, Kolmogorov-Smirnov tests, timing. NumPy and SciPy only."""
