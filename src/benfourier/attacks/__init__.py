"""Attacks on a subject: images that are almost the same and classified as something else."""
