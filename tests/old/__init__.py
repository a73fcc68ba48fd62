"""Homes that earlier releases made: later ones open them, read every key and row, and go on with them."""
