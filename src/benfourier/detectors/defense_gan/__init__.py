"""Defense-GAN: the detector, its networks and their training."""
