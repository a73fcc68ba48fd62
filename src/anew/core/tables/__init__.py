"""Tables: schema, configuration and its hash, segments and their builds, and what a refresh chooses."""
