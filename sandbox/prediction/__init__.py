"""How runs on this host become a prediction for a device."""
