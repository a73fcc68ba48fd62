"""The storage server: hosts replicas, works towards its desired state and answers reads."""
