"""The durable home of immutable files: fresh paths, verified before they are published, never overwritten."""
