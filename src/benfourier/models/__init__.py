"""Classifiers: the module, its layers and weights, observed forward passes, training, and the zoo."""
