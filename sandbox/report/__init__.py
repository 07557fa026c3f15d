"""Records to text: one `render` each; no kernel, no engine, no clock."""
