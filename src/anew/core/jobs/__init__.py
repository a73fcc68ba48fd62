"""Stream jobs: what they are, what their batches did, and the order in which generations come and go."""
