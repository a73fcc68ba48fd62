"""Settings, wiring, the clock and the local cluster: the shell around everything below it."""
