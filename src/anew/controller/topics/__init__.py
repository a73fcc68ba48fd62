"""Topics of our own, as the controller makes, keeps and removes them."""
