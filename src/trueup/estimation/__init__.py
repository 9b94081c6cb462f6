"""Room: estimation."""
