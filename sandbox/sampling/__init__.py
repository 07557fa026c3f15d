"""The clock and the one loop of a run: ticks, deadlines, signals, events."""
