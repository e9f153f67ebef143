"""A classifier behind a detector: labels for the images it accepts, rejection of the others."""
