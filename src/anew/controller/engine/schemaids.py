"""The ids of schemas: the catalog numbers them, or the schema registry of those who write with us."""

from __future__ import annotations

from anew.controller.engine.context import Context


def schema_number(context: Context, subject: str, canonical: str) -> int:
    """The id of a schema under a registry's subject; without a registry, a number that no other schema gets.

    Raises:
        Unreachable, Refused, Failed: As `anew.registry.interface.SchemaRegistry.register`.
    """
    if context.registry is None:
        return context.catalog.next_number("schema_id")
    return context.registry.register(subject, canonical)
