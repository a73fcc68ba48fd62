"""The ids of a store's schemas: the catalog numbers them, or the schema registry of those who write with us.

Under a registry a store's subjects are those that Confluent's serialisers use by default: its topic's name with
``-key`` and ``-value``. The order in which a store got its value schemas is theirs, not that of their ids: a registry
gives an old id to a schema that it knows from elsewhere.
"""

from __future__ import annotations

import structlog

from anew.codec.avro import check_evolution, parse_schema
from anew.controller.engine.context import Context
from anew.controller.engine.schemaids import schema_number
from anew.core.errors import AnewError, Refused
from anew.core.stores.store import Store

_LOG = structlog.get_logger("anew.controller")


def key_schema_id(context: Context, topic: str, canonical: str) -> int:
    """The id of a new store's key schema.

    Raises:
        Unreachable, Refused, Failed: As `anew.registry.interface.SchemaRegistry.register`.
    """
    return schema_number(context, f"{topic}-key", canonical)


def value_schema_id(context: Context, topic: str, canonical: str, store: Store | None = None) -> int:
    """The id of a value schema that a store is to get.

    Raises:
        Refused: ``schema_id_taken``: the store has another schema under that id already.
        Unreachable, Refused, Failed: As `anew.registry.interface.SchemaRegistry.register`.
    """
    number = schema_number(context, f"{topic}-value", canonical)
    if store is not None and store.schemas.get(number, canonical) != canonical:
        raise Refused(
            "schema_id_taken",
            f"the schema registry gives an id that another schema of {store.name} has",
            found=f"{number}: {store.schemas[number]}",
            expected="an id that the store has not given",
            hint="its ids are from before the registry, or the registry lost its data: make the store anew",
        )
    return number


def registered_since(context: Context, store: Store, topic: str) -> dict[int, str]:
    """The value schemas that others registered for a store's topic and that the store may take, in their order.

    One that does not fit to those that the store has is left out: values of it are dead letters.

    Raises:
        Unreachable, Refused, Failed: As `anew.registry.interface.SchemaRegistry.versions`.
    """
    if context.registry is None:
        return {}
    found = dict(store.schemas)
    for one in context.registry.versions(f"{topic}-value"):
        if one.id in found:
            continue
        try:
            schema = parse_schema(one.schema)
            check_evolution([parse_schema(text) for text in found.values()], schema)
        except AnewError as error:
            _LOG.warning("schema_not_taken", store=store.name, schema_id=one.id, **error.to_json())
        else:
            found[one.id] = schema.canonical
    return {number: text for number, text in found.items() if number not in store.schemas}
