"""Every formula: pure functions of records."""
