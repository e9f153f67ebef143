"""Tools for the pages of this repository."""
