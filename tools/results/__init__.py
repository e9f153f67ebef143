"""docs/results.md and the README's headline, from the ledgers in experiments/results."""
