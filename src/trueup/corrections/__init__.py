"""Room: corrections."""
