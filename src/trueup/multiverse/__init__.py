"""Room: every universe fitted, and joint statements about all of them."""
