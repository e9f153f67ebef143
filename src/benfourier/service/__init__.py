"""The guard over HTTP: the Open Inference Protocol for programs, `/v1/check` and a page for people."""
