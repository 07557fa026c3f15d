"""The order of one run: check, create, apply, launch, sample, wait, read, remove."""
