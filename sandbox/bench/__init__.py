"""Repeats of commands: their parameters, order and hooks."""
