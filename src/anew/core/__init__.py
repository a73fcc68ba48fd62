"""Nouns, rules and state machines: values in, values out; no clock, no I/O, no threads."""
