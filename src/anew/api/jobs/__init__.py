"""Wire models of stream jobs: requests, views, and what their drivers are told."""
