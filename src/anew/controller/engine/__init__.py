"""The engine: what every rebuild goes through, whatever it is of. What differs is a subject, see `subjects`."""
