"""Files: the ledger and its records, artifacts, the cache, and the vocabulary that packages share; no torch."""
