"""Real processes that die or stand still at a named point, and what is left of their work afterwards."""
