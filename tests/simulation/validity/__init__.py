"""Do the intervals hold? A simulation over about 150 situations, kept in the open."""
