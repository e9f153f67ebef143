"""Studies of a plan beside its trials."""
