"""Every result type: frozen values, ints in kernel units; `None` means that it was not measured."""
