"""A small process beside a big Python program: it launches and samples for it."""
