"""A job's function tried before it is submitted: imported, called with frames of its inputs, its columns compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anew.core.jobs.code import JobCode, Shape
from anew.core.jobs.declaration import Declaration, declaration_of
from anew.core.jobs.inputs import Offsets
from anew.rebuild.jobs.archive import Unpacked
from anew.rebuild.jobs.calling import load
from anew.rebuild.jobs.running import checked_frame
from anew.spark.jobs.decoding import InputTask
from anew.spark.jobs.shape import shape_of
from anew.spark.jobs.sink import check_types
from anew.spark.jobs.source import Reading
from anew.spark.session import SparkSession


@dataclass(frozen=True, slots=True)
class Trial:
    """What a function is tried with.

    Attributes:
        code: It.
        unpacked: Its archive.
        inputs: Input → what its tasks would be given.
        starts: Input → partition → the first offset.
        job: What its job is.
        key_schema, value_schema: Avro texts of the output; None: nothing is known of it.
    """

    code: JobCode
    unpacked: Unpacked
    inputs: Mapping[str, InputTask]
    starts: Mapping[str, Offsets]
    job: Declaration
    key_schema: str | None
    value_schema: str | None


def try_function(spark: SparkSession, trial: Trial) -> Shape:
    """What the function keeps of each record, if it can be run and its output takes what it gives; nothing is read.

    Raises:
        InvalidRequest: ``import_failed``, ``no_function``, ``bad_parameters``, ``bad_param``, ``function_failed``,
            ``not_a_frame``, ``not_streaming``, ``stateful_operator``, ``missing_column``, ``unknown_column``,
            ``no_written_at``, ``column_type``, ``declared_otherwise``.
    """
    function = load(trial.code, trial.unpacked, list(trial.inputs))
    declaration_of(function.function).check_of(trial.job, trial.code.entry)
    readings = {name: Reading(task, dict(trial.starts[name]), 1) for name, task in trial.inputs.items()}
    found = checked_frame(spark, function, readings)
    check_types(found.frame, trial.key_schema, trial.value_schema)
    return shape_of(found.frame).model_copy(update={"state": found.state})
