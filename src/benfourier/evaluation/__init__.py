"""How well detectors do: metrics with intervals, protocols, plans and their runner."""
