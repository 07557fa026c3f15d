"""The command line: one file a command; only `main()` exits the process."""
