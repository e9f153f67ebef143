"""Attacks on a classifier: images that are almost the same and classified as something else."""
