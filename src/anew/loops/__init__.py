"""What runs for as long as a process lives: loops, which say when they do not get on, and processes at its side."""
