"""The run directory: the only place that knows its files."""
