"""What brokers are started with: their settings, their logging, the options of their JVM."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anew.brokers.record import ClusterRecord
from anew.runtime.security import write_private

_JAVA_OPTIONS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)

_LOGGING = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="error" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{yyyy-MM-dd'T'HH:mm:ss.SSS}}{{UTC}}Z %p %c{{1}} %m%n"/>
      <SizeBasedTriggeringPolicy size="10 MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="info"><AppenderRef ref="file"/></Root>
    <Logger name="kafka.request.logger" level="warn"/>
    <Logger name="org.apache.kafka.clients" level="warn"/>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What a cluster of brokers is to be.

    Each broker has three listeners on 127.0.0.1: ``CLIENT``, of which `Brokers.bootstrap` tells the ports; ``BROKER``,
    among brokers; ``CONTROLLER``. The last two stay plain whatever clients have to do.

    Attributes:
        brokers: How many: 1 or 3.
        extra: Kafka's settings for all brokers, over those given here, such as ``authorizer.class.name``, or
            ``listener.security.protocol.map`` to have clients speak TLS or authenticate.
        environment: Broker id → environment variables of that one broker, such as ``LD_PRELOAD`` of libfaketime.
    """

    brokers: int = 1
    extra: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerFolder:
    """What lies where of one broker."""

    path: Path
    id: int

    @property
    def home(self) -> Path:
        """All that is this broker's."""
        return self.path / f"broker-{self.id}"

    @property
    def data(self) -> Path:
        """Its records and metadata; there once it is formatted."""
        return self.home / "data"

    @property
    def properties(self) -> Path:
        """Its settings, as Kafka reads them."""
        return self.home / "server.properties"

    @property
    def logging(self) -> Path:
        """What log4j does for it."""
        return self.home / "log4j2.xml"

    @property
    def temporary(self) -> Path:
        """Where its JVM unpacks native libraries, and leaves them when it is killed."""
        return self.home / "tmp"

    @property
    def log(self) -> Path:
        """What it logs."""
        return self.path / "logs" / f"broker-{self.id}.log"

    @property
    def printed(self) -> Path:
        """What its JVM printed since its last start."""
        return self.path / "logs" / f"broker-{self.id}.out"

    @property
    def lock(self) -> Path:
        """Locked by its process for as long as that lives; holds its pid."""
        return self.home / "process"


def write_configuration(record: ClusterRecord, settings: BrokerSettings, broker: BrokerFolder) -> None:
    """Write what a broker, which does not run, is started with."""
    shutil.rmtree(broker.temporary, ignore_errors=True)
    for folder in (broker.home, broker.temporary, broker.log.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    write_private(broker.properties, properties_text(properties_of(record, settings, broker)))
    write_private(broker.logging, logging_text(broker))


def properties_of(record: ClusterRecord, settings: BrokerSettings, broker: BrokerFolder) -> dict[str, str]:
    """Kafka's settings of one broker; paths are as seen from its own directory."""
    ports = record.brokers[broker.id]
    voters = ",".join(f"{id}@127.0.0.1:{other.controller}" for id, other in record.brokers.items())
    return {
        **_common(len(record.brokers)),
        **{
            "node.id": str(broker.id),
            "controller.quorum.voters": voters,
            "listeners": ",".join(
                (
                    f"CLIENT://127.0.0.1:{ports.client}",
                    f"BROKER://127.0.0.1:{ports.broker}",
                    f"CONTROLLER://127.0.0.1:{ports.controller}",
                )
            ),
            # Below the process's directory: a home's path may have commas, which would part it in two here.
            "log.dirs": broker.data.name,
        },
        **settings.extra,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Settings as the text of a Java properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def logging_text(broker: BrokerFolder) -> str:
    """The configuration of a broker's log: at most three files of 10 MB; paths as in `properties_of`."""
    return _LOGGING.format(log=f"../{broker.log.relative_to(broker.path)}")


def java_options(broker: BrokerFolder) -> list[str]:
    """The options of a broker's JVM, which runs in the broker's own directory."""
    return [*_JAVA_OPTIONS, f"-Djava.io.tmpdir={broker.temporary}", f"-Dlog4j2.configurationFile={broker.logging.name}"]


def _common(brokers: int) -> dict[str, str]:
    enough = str(max(1, brokers - 1))
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # Copies of everything on all brokers, so that one of three may go.
        "default.replication.factor": str(brokers),
        "min.insync.replicas": enough,
        "offsets.topic.replication.factor": str(brokers),
        "transaction.state.log.replication.factor": str(brokers),
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": str(brokers),
        "share.coordinator.state.topic.min.isr": enough,
        # Small: there are a few clients, and the machine is somebody's own.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "2",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "4",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        # One that was killed is not missed for so long, and not let in again either: three seconds, not nine.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
