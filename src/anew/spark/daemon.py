"""Spark's Python daemon, with what tasks need imported before it forks its workers.

A session that is made here for local tasks starts it as ``python -m anew.spark.daemon pyspark.worker``. Workers of
Spark's own daemon import Arrow, pandas and this package each by itself, which takes every one two seconds. Nothing is
computed here: a thread that runs before the fork would be missing after it.
"""

from __future__ import annotations

import gc

import pyspark.daemon
import pyspark.worker  # what each worker runs

import anew.spark.jobs.sink  # those of a job's output
import anew.spark.jobs.source  # those of a job's inputs
import anew.spark.stores.build  # the tasks of every rebuild
import anew.spark.stores.pushscan  # those of a push
import anew.spark.tables.segmenttask  # those of a refresh
import anew.spark.tables.write  # noqa: F401  # those of a load

if __name__ == "__main__":
    # None of it ever becomes garbage, and what is not looked at is not copied for a worker.
    gc.freeze()
    pyspark.daemon.manager()
