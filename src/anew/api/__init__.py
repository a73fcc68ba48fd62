"""What goes over the wire between controller, nodes, drivers and clients: models and HTTP clients."""
