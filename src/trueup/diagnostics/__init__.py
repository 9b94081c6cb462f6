"""Room: diagnostics. How far annotators agree, and what their errors follow."""
