"""What can be done to live runs: list, kill, pause, update, wait, clean."""
