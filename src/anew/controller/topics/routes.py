"""The controller's routes for topics."""

from __future__ import annotations

from fastapi import FastAPI

from anew.api.pages import DEFAULT_ITEMS, Page, page_of
from anew.api.rights import OPERATE, OPERATE_NAME, READ, READ_ALL, takes
from anew.api.stores.views import Deleted
from anew.api.topics import AlterTopic, CreateTopic, TopicView
from anew.controller.engine.context import Context
from anew.controller.engine.parameters import Actor, After, Limit
from anew.controller.topics import changing, views
from anew.controller.topics.records import topic_named


def add_topics(app: FastAPI, context: Context) -> None:
    """Topics of our own."""

    @app.post("/v1/topics", status_code=201, tags=["topics"])
    @takes(OPERATE_NAME)
    def create(request: CreateTopic, actor: Actor = "anonymous") -> TopicView:
        """Make a topic."""
        return views.topic_view(context, changing.create_topic(context, request, actor))

    @app.get("/v1/topics", tags=["topics"])
    @takes(READ_ALL)
    def list_topics(limit: Limit = DEFAULT_ITEMS, after: After = None) -> Page[TopicView]:
        """All topics, by name."""
        found = page_of(context.catalog.topics_page(after or "", limit + 1), limit, lambda topic: topic.name)
        return Page(items=views.topic_views(context, found.items), next=found.next)

    @app.get("/v1/topics/{name}", tags=["topics"])
    @takes(READ)
    def show(name: str, facts: bool = True) -> TopicView:  # noqa: FBT001, FBT002
        """One topic, with what its log says of it now; without ``facts`` the log is not asked."""
        topic = topic_named(context, name)
        return views.topic_with_facts(context, topic) if facts else views.topic_view(context, topic)

    @app.patch("/v1/topics/{name}", tags=["topics"])
    @takes(OPERATE)
    def alter(name: str, request: AlterTopic, actor: Actor = "anonymous") -> TopicView:
        """Give a topic more partitions."""
        return views.topic_view(context, changing.alter_topic(context, name, request, actor))

    @app.delete("/v1/topics/{name}", tags=["topics"])
    @takes(OPERATE)
    def delete(name: str, actor: Actor = "anonymous") -> Deleted:
        """Delete a topic; the log's topic goes after the grace."""
        changing.delete_topic(context, name, actor)
        return Deleted(deleted=name)
