"""A node's metrics of its replicas."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric

from anew.api.stores.replicas import ReplicaReport, ReplicaState
from anew.core.feed import NOWHERE
from anew.node.metrics import _replica_metrics


def test_each_instance_of_a_partition_has_samples_of_its_own() -> None:
    """A partition that is kept as several instances gives none of them the labels of another: a scrape would fail."""
    replicas = tuple(
        ReplicaReport(
            store_uid="u",
            version=1,
            partition=partition,
            sub_partition=sub_partition,
            state=ReplicaState.APPLYING,
            store_revision=1,
            position=NOWHERE,
            lag_records=10 * partition + sub_partition,
        )
        for partition in range(2)
        for sub_partition in range(3)
    )
    metrics: list[Metric] = list(_replica_metrics(replicas))
    for metric in metrics:
        labels = [tuple(sorted(sample.labels.items())) for sample in metric.samples]
        assert len(set(labels)) == len(labels) > 0
    lags = {
        sample.labels["sub_partition"]: sample.value
        for sample in metrics[1].samples
        if sample.labels["partition"] == "1"
    }
    assert lags == {"0": 10, "1": 11, "2": 12}
