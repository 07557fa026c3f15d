"""Auptimizer-compatible profiling of many models."""
