"""Classifiers under observation: subjects, taps on their layers, MBF features, the zoo."""
