"""Stream jobs: generations that are planned, run by drivers of their own, cut over to, and reclaimed."""
