"""A guard over HTTP: the Open Inference Protocol, `/v1/check`, and a page."""
