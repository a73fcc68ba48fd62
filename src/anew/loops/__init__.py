"""Loops that a process runs for as long as it lives: none ends by an error, and each says when it does not get on."""
