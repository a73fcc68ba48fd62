"""The tables. Documents are JSON texts of the core's models; what is searched for has a column of its own."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

COUNTERS = sa.Table(
    "counters",
    METADATA,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
"""Named sequences, and the catalog's own revision under ``revision``."""

STORES = sa.Table(
    "stores",
    METADATA,
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("live_name", sa.String(64), nullable=True, unique=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("next_version", sa.Integer, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)

PAST_VERSIONS = sa.Table(
    "past_versions",
    METADATA,
    sa.Column("store_uid", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("left_at_ms", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Index("ix_past_versions_left", "left_at_ms"),
)
"""Versions that were reclaimed and have left their store."""

REBUILDS = sa.Table(
    "rebuilds",
    METADATA,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("subject_uid", sa.String(64), nullable=False, index=True),
    sa.Column("running", sa.Boolean, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Index("ix_rebuilds_running", "running", "created_at_ms", "id"),
    sa.Index("ix_rebuilds_created", "created_at_ms"),
)
"""``document`` is all but the plan, which may be long and never changes."""

REQUESTS = sa.Table(
    "requests",
    METADATA,
    sa.Column("request_id", sa.String(200), primary_key=True),
    sa.Column("body_hash", sa.String(64), nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Index("ix_requests_at", "at_ms"),
    sa.Index("ix_requests_result", "result"),
)

HISTORY = sa.Table(
    "history",
    METADATA,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("operation_id", sa.String(64), nullable=False, unique=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.String(200), nullable=False),
    sa.Column("what", sa.String(200), nullable=False),
    sa.Column("subject", sa.String(200), nullable=False, index=True),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("0"), index=True),
)

NODES = sa.Table(
    "nodes",
    METADATA,
    sa.Column("id", sa.String(100), primary_key=True),
    sa.Column("fabric", sa.String(100), nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("last_seen_ms", sa.BigInteger, nullable=False),
    sa.Column("removed", sa.Boolean, nullable=False),
    sa.Column("report", sa.Text, nullable=False),
)

RECLAIMS = sa.Table(
    "reclaims",
    METADATA,
    sa.Column("id", sa.String(200), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("fabric", sa.String(100), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("not_before_ms", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)

FLAGS = sa.Table(
    "flags",
    METADATA,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

DEAD_LETTERS = sa.Table(
    "dead_letters",
    METADATA,
    sa.Column("feed", sa.String(300), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True),
    sa.Column("store_uid", sa.String(64), nullable=False, index=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("set_aside", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("at_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Index("ix_dead_letters_waiting", "set_aside", "store_uid"),
)

TABLES = sa.Table(
    "tables",
    METADATA,
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("live_name", sa.String(64), nullable=True, unique=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)

TOPICS = sa.Table(
    "topics",
    METADATA,
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("live_name", sa.String(64), nullable=True, unique=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("live_name", sa.String(64), nullable=True, unique=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
)

BATCHES = sa.Table(
    "batches",
    METADATA,
    sa.Column("job_uid", sa.String(64), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True),
    sa.Column("batch", sa.BigInteger, primary_key=True),
    sa.Column("document", sa.Text, nullable=False),
)
"""What the batches of a generation did; the last ones alone are kept."""

JOB_DEAD_LETTERS = sa.Table(
    "job_dead_letters",
    METADATA,
    sa.Column("job_uid", sa.String(64), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True),
    sa.Column("input", sa.String(200), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("replayed_at_ms", sa.BigInteger, nullable=True),
)
"""Records that the generations of a job left out; all are kept, for as long as the job is known."""

TABLE_CONFIGS = sa.Table(
    "table_configs",
    METADATA,
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("document", sa.Text, nullable=False),
)
"""Every configuration that a segment was ever built with, or that was wanted, by its hash (case A9)."""

SEGMENTS = sa.Table(
    "segments",
    METADATA,
    sa.Column("table_uid", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("build", sa.String(64), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("config_hash", sa.String(64), nullable=True),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("failed_hash", sa.String(64), nullable=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("made_by", sa.String(64), nullable=True, index=True),
    sa.Index("ix_segments_slot", "table_uid", "slot", "name"),
)
"""``made_by`` is the rebuild that a segment has to be asked about: it does not say itself which load it belongs to."""

SEGMENT_SLOTS = sa.Table(
    "segment_slots",
    METADATA,
    sa.Column("table_uid", sa.String(64), primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
)
"""How often a slot's segments changed; a row stays when they are all gone, so that it never goes back."""

SEGMENT_OUTCOMES = sa.Table(
    "segment_outcomes",
    METADATA,
    sa.Column("rebuild", sa.String(64), primary_key=True),
    sa.Column("segment", sa.String(200), primary_key=True),
    sa.Column("document", sa.Text, nullable=False),
)
