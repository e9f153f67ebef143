"""From a ledger alone to tables, figures and one page; beside the paper's numbers, and without torch."""
