"""What this host can enforce and measure, and how to mend what it cannot."""
