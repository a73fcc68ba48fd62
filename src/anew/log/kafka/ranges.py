"""Begins, ends and times of partitions on Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import DeletedRecords, ListOffsetsResultInfo, OffsetSpec

from anew.core.errors import Failed, Refused
from anew.log.interface import Offsets, PartitionFacts, TopicPartition
from anew.log.kafka.connection import Connection
from anew.log.kafka.failures import LOST, OUT_OF_RANGE, unreachable
from anew.log.kafka.topics import Topics
from anew.log.refusals import beyond_the_end

Answer = TypeVar("Answer")
_LEADER_SECONDS = 1.0
"""One broker is asked who leads; it may be the one that stands still."""
_OF_A_LEADER = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_BROKER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
"""What the leader that a client knows answers, or does not, when another one leads."""


class Ranges:
    """Which offsets partitions have; each answer is checked to be of the topic that was asked for."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection, self._topics = connection, topics

    def offsets(self, at: TopicPartition) -> Offsets:
        """See `Log.offsets`; the end is the last stable offset (rule R7)."""
        return self._of_topic(at, lambda: self._offsets(at))

    def next_offset(self, at: TopicPartition) -> int:
        """See `Log.next_offset`; the high watermark, which also tells of what nobody may read yet."""

        def high() -> int:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # Confluent left its types out
            what = f"see the end of partition {at.partition} of {at.topic}"
            told = self._listed([at], latest, what, IsolationLevel.READ_UNCOMMITTED).get(at)
            if told is None:
                raise unreachable(self._connection.bootstrap, "no answer", self._connection.timeout_seconds)
            return int(told.offset)

        return self._of_topic(at, high)

    def facts(self, ats: Sequence[TopicPartition]) -> tuple[PartitionFacts, ...]:
        """Begin, end and oldest time of partitions; the caller looks afterwards whether the topic is still the same.

        Raises:
            Unreachable: ``log_unreachable``.
            Failed: ``topic_lost``.
        """
        # Of the first record since 1970 a broker says the time as well; at the edges it says offsets alone.
        asked = OffsetSpec.for_timestamp(0)
        oldest = self._listed(ats, asked, "see the oldest records of partitions")
        found = []
        for at in ats:
            offsets = self._offsets(at)
            told = oldest.get(at)
            is_there = told is not None and offsets.begin < offsets.end
            found.append(PartitionFacts(offsets.begin, offsets.end, int(told.timestamp) if told and is_there else None))
        return tuple(found)

    def ends(self, ats: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of many partitions (rule R7), by one request to each broker; those that cannot be told are left out.

        Raises:
            Unreachable: ``log_unreachable``.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # Confluent left its types out
        listed = self._listed(ats, latest, "see the ends of partitions")
        found = {at: int(info.offset) for at, info in listed.items()}
        # Each topic was the one that was asked for afterwards, and ids never come again.
        present = self._topics.present({at.topic: at.uid for at in found})
        return {at: end for at, end in found.items() if at.topic in present}

    def offset_for_time(self, at: TopicPartition, appended_ms: int) -> int:
        """See `Log.offset_for_time`."""

        def bounded() -> int:
            found = self._ask(at, "see", lambda seconds: self._found(at, max(0, appended_ms), seconds))
            offsets = self._offsets(at)
            # A negative offset says that no record is so late.
            return offsets.end if found < 0 else max(offsets.begin, min(found, offsets.end))

        return self._of_topic(at, bounded)

    def truncate_below(self, at: TopicPartition, offset: int) -> None:
        """See `Log.truncate_below`."""
        offsets = self.offsets(at)
        if offset > offsets.end:
            raise beyond_the_end(at, offset, offsets.end)
        if offset <= offsets.begin:
            return

        def delete(seconds: float) -> DeletedRecords:
            asked = confluent_kafka.TopicPartition(at.topic, at.partition, offset)
            futures = self._connection.admin.delete_records([asked], request_timeout=seconds, operation_timeout=seconds)
            deleted: DeletedRecords = futures[asked].result(seconds + 1)
            return deleted

        self._ask(at, "delete records of", delete)

    def _listed(
        self,
        ats: Collection[TopicPartition],
        where: OffsetSpec,
        what: str,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, ListOffsetsResultInfo]:
        """What brokers say of a place in many partitions, without those of which none says anything."""
        asked = {confluent_kafka.TopicPartition(at.topic, at.partition): at for at in ats}

        def see(seconds: float) -> dict[TopicPartition, ListOffsetsResultInfo]:
            futures = self._connection.admin.list_offsets(
                dict.fromkeys(asked, where),
                isolation_level=isolation,
                request_timeout=seconds,
            )
            found = {}
            for which, future in futures.items():
                with suppress(KafkaException):
                    info = future.result(seconds + 1)
                    # Of a broker that did not answer librdkafka tells a negative offset, and no error.
                    if info.offset >= 0:
                        found[asked[which]] = info
            return found

        return self._connection.ask(what, see)

    def _offsets(self, at: TopicPartition) -> Offsets:
        # One after the other. Asked for both at once (`Consumer.get_watermark_offsets`) librdkafka takes the end for
        # the begin when a broker that is about to lead refuses the first question and answers the second: whoever
        # starts there never sees what lies before.
        return Offsets(self._edge(at, OFFSET_BEGINNING), self._edge(at, OFFSET_END))

    def _edge(self, at: TopicPartition, which: int) -> int:
        def find(seconds: float) -> int:
            found = self._found(at, which, seconds)
            if found < 0:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "a broker tells no offset"))
            return found

        return self._ask(at, "see", find)

    def _found(self, at: TopicPartition, which: int, seconds: float) -> int:
        """The first offset since a time, or at an edge (`OFFSET_BEGINNING`, `OFFSET_END`); negative when there is none.

        Raises:
            KafkaException: Brokers refuse, or do not answer.
        """
        asked = confluent_kafka.TopicPartition(at.topic, at.partition, which)
        (found,) = self._connection.offsets.offsets_for_times([asked], seconds)
        if found.error is not None:
            raise KafkaException(found.error)
        return int(found.offset)

    def _of_topic(self, at: TopicPartition, answer: Callable[[], Answer]) -> Answer:
        """An answer of the topic that was asked for: it was that one afterwards, and ids never come again."""
        if at.partition < 0:
            self._topics.check(at)
        found = answer()
        self._topics.check(at)
        return found

    def _ask(self, at: TopicPartition, what: str, act: Callable[[float], Answer]) -> Answer:
        def act_on_it(seconds: float) -> Answer:
            try:
                return act(seconds)
            except KafkaException as error:
                told = error.args[0]
                if told.code() in LOST:
                    self._topics.check(at)
                elif told.code() not in _OF_A_LEADER:
                    raise
                # librdkafka asks the leader that it knows, though that is dead, and calls a partition unknown that had
                # none when it asked last; by itself it asks for another one after minutes.
                self._connection.offsets.list_topics(at.topic, min(seconds, _LEADER_SECONDS))
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, told.str())) from error

        try:
            return self._connection.ask(f"{what} partition {at.partition} of {at.topic}", act_on_it)
        except KafkaException as error:
            told = error.args[0]
            if told.code() in OUT_OF_RANGE:
                raise Refused("offset_out_of_range", f"{at.topic} has no such offset", found=told.str()) from error
            raise Failed("log_failed", f"Kafka refuses to {what} {at.topic}", found=told.str()) from error
