"""Function-level traces: the agent in the user's program, and its reader."""
