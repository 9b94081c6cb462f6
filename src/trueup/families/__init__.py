"""Room: families."""
