"""Grids of trials: models by budgets by repeats."""
