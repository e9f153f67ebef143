"""What is kept on disk: artifacts, digests of contents."""
