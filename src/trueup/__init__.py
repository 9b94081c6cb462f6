"""Regression on LLM labels, trued up with a human-coded sample."""
