"""Topics as rows: for `anew.catalog.database`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from anew.catalog.change import PutRestoredTopic, PutTopic
from anew.catalog.conflicts import check_swapped
from anew.catalog.engine import Database
from anew.catalog.forget import DropTopic
from anew.catalog.tables import TOPICS
from anew.core.errors import Refused
from anew.core.topics.topic import Topic


class DatabaseTopics:
    """What `anew.catalog.interface.Catalog` reads of topics."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def topic(self, name: str) -> Topic | None:
        """See `Catalog.topic`."""
        return next(iter(self._topics(TOPICS.c.live_name == name)), None)

    def topic_by_uid(self, uid: str) -> Topic | None:
        """See `Catalog.topic_by_uid`."""
        return next(iter(self._topics(TOPICS.c.uid == uid)), None)

    def topics(self) -> list[Topic]:
        """See `Catalog.topics`."""
        return self._topics(TOPICS.c.live_name.is_not(None))

    def topics_page(self, after: str, limit: int) -> list[Topic]:
        """See `Catalog.topics_page`."""
        query = sa.select(TOPICS.c.document).where(TOPICS.c.live_name > after).order_by(TOPICS.c.live_name)
        return self._found(query.limit(limit))

    def deleted_topics(self) -> list[Topic]:
        """See `Catalog.deleted_topics`."""
        return self._topics(TOPICS.c.live_name.is_(None))

    def _topics(self, condition: sa.ColumnElement[bool]) -> list[Topic]:
        found = self._found(sa.select(TOPICS.c.document).where(condition))
        # Sorted here: databases differ in how they compare texts.
        return sorted(found, key=lambda topic: topic.name)

    def _found(self, query: sa.Select[Any]) -> list[Topic]:
        documents = self._database.read(lambda connection: list(connection.execute(query).scalars()))
        return [Topic.model_validate_json(document) for document in documents]


def apply(connection: sa.Connection, put: PutTopic | PutRestoredTopic | DropTopic) -> None:
    """Carry out one part of a change.

    Raises:
        Refused: ``revision_conflict``, ``topic_exists``.
    """
    row = TOPICS.c
    if isinstance(put, DropTopic):
        gone = sa.delete(TOPICS).where(row.uid == put.uid, row.revision == put.fence, row.live_name.is_(None))
        check_swapped(connection.execute(gone).rowcount, f"the deleted topic {put.uid}", put.fence)
        return
    if isinstance(put, PutRestoredTopic):
        connection.execute(sa.insert(TOPICS).values(uid=put.topic.uid, **_row(put.topic)))
        return
    topic = put.topic.model_copy(update={"revision": 1 if put.fence is None else put.fence + 1})
    values = _row(topic)
    what = f"the topic {topic.name}"
    if put.fence is None:
        if connection.execute(sa.select(row.uid).where(row.live_name == topic.name)).first() is not None:
            raise Refused(
                "topic_exists",
                f"there is a topic {topic.name} already",
                found=topic.name,
                expected="a name that is not taken",
                hint=f"anew topic show {topic.name}",
            )
        known = connection.execute(sa.select(row.uid).where(row.uid == topic.uid)).first()
        check_swapped(int(known is None), what, None)
        connection.execute(sa.insert(TOPICS).values(uid=topic.uid, **values))
    else:
        update = sa.update(TOPICS).where(row.uid == topic.uid, row.revision == put.fence)
        check_swapped(connection.execute(update.values(**values)).rowcount, what, put.fence)


def _row(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "live_name": None if topic.deleted_at_ms is not None else topic.name,
        "revision": topic.revision,
        "document": topic.model_dump_json(),
    }
