"""Commands for stream jobs."""
