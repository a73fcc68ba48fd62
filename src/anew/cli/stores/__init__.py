"""Commands for stores."""
