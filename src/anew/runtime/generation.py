"""A process that drives a generation of a job."""

from __future__ import annotations

from anew.api.http import ControllerClient
from anew.deepstore.open import open_deep_store
from anew.rebuild.jobs.driving import Driving, drive
from anew.runtime.actor import driver_name
from anew.runtime.clock import now_ms
from anew.runtime.java import check_java
from anew.runtime.sparkchoice import SparkChoice, spark_of


def drive_generation(controller: ControllerClient, job: str, number: int, log: str, patience_seconds: float) -> None:
    """Drive a generation of a job until it is to stop.

    Args:
        controller: The controller.
        job: The job's name.
        number: The generation's.
        log: Where this process logs.
        patience_seconds: How long the controller may be away.

    Raises:
        NotFound: ``unknown_job``, ``unknown_generation``.
        Refused: ``driver_alive``, ``generation_stopped``; nothing was begun.
        AnewError: Why it ended.
    """
    check_java()
    found = controller.job(job).generation(number)
    driving = Driving(
        controller=controller,
        session=lambda master, conf: spark_of(SparkChoice(master=master, conf=conf)),
        deep_store=open_deep_store,
        driver=driver_name(log),
        clock=now_ms,
        patience_seconds=patience_seconds,
    )
    drive(found.rebuild, driving)
