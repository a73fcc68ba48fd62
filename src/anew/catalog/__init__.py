"""The metadata store: every row has a revision, every change is a compare-and-swap."""
