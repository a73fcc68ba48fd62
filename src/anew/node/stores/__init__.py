"""What a node does with stores: loading, applying, serving and verifying replicas."""
