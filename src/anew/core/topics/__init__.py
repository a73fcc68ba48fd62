"""Topics of our own: what they are, and what their records hold."""
