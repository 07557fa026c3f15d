"""Every kernel name and number: control files, launching, waiting, killing."""
