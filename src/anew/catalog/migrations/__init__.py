"""The catalog's schema migrations (Alembic)."""
