"""What an application holds: reads from nodes, nearline writes to the log."""
