"""Detectors: MBF and those it is compared with, one file each."""
