"""Room: formula."""
