"""Room: inference."""
