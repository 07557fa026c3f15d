"""Dockerfiles and build contexts: read, judged and expanded; nothing is run or written here."""
