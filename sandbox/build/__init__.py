"""Images built from a Dockerfile or from variables."""
