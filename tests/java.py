"""How the tests run Java."""

from __future__ import annotations

BRIEFLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that ends before its second compiler has paid off: it takes half the processor time to start."""
