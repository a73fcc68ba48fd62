"""Reading and writing stores from a program."""
