"""Metrics of a model file, in process."""
