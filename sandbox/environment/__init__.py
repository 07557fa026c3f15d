"""Where a command runs (host, venv, image): its argv, environment and root."""
