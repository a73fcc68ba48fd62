"""Stores: what only they need of the controller. Their rebuilds go through the engine, see `subject`."""
