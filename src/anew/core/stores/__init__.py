"""What only stores have: their plans and the records of their rebuilds."""
