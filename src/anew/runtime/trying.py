"""A job's function tried in a process of its own, or asked what it declares: ``python -m anew.runtime.trying FOLDER``.

Whoever submits a job runs none of its code: what the function prints, changes or breaks stays in that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anew.core.errors import AnewError, Failed, InvalidRequest
from anew.core.jobs.code import JobCode, Shape
from anew.core.jobs.declaration import Declaration, declaration_of
from anew.core.jobs.inputs import JobInput
from anew.core.jobs.plan import JobPlan

if TYPE_CHECKING:
    from anew.rebuild.jobs.archive import Unpacked

_TRY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Tried:
    """What a function is tried with: an archive, the inputs with their locations, and the output's schemas.

    Attributes:
        job: What its job is, which the function may declare.
    """

    code: JobCode
    archive: bytes
    plan: JobPlan
    job: Declaration
    locations: dict[str, dict[str, Any]]
    key_schema: str | None = None
    value_schema: str | None = None


def try_out(tried: Tried) -> Shape:
    """What the function keeps of each record.

    Raises:
        InvalidRequest: What is wrong with the function, see `anew.rebuild.jobs.trying.try_function`.
        Failed: ``trial_failed``: the process broke, or took too long.
    """
    said = {
        "code": tried.code.model_dump(mode="json"),
        "plan": tried.plan.model_dump(mode="json"),
        "job": tried.job.model_dump(mode="json"),
        "locations": tried.locations,
        "key_schema": tried.key_schema,
        "value_schema": tried.value_schema,
    }
    return Shape.model_validate(_answered(tried.archive, said))


def declared_by(code: JobCode, archive: bytes) -> Declaration:
    """What a function itself declares; its module is imported, and nothing else is done.

    Raises:
        InvalidRequest: ``import_failed``, ``no_function``.
        Failed: ``trial_failed``: the process broke, or took too long.
    """
    return Declaration.model_validate(_answered(archive, {"code": code.model_dump(mode="json")}))


def _answered(archive: bytes, said: dict[str, Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix="anew-trial-") as folder:
        packed, order, answer = (Path(folder) / name for name in ("archive.zip", "order.json", "answer.json"))
        packed.write_bytes(archive)
        order.write_text(json.dumps(said), encoding="utf-8")
        command = [sys.executable, "-m", "anew.runtime.trying", folder]
        try:
            ended = subprocess.run(command, capture_output=True, timeout=_TRY_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise _broke(
                "the function was tried, and gave nothing in time",
                f"nothing for {_TRY_SECONDS:g} s, of which Spark needs some to start",
                "a function only says what is done with its frames, it does not wait; or this machine is busy: again, "
                "or --no-trial, which submits it untried",
            ) from error
        if not answer.exists():
            words = ended.stderr.decode(errors="replace").strip().splitlines()
            raise _broke(
                "the process in which the function was tried broke",
                words[-1] if words else f"exit code {ended.returncode}",
                "does it run with a frame of its own? --no-trial submits it untried",
            )
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "found" in found:
        return found["found"]
    parts = found["error"]
    kind = Failed if found["failed"] else InvalidRequest
    raise kind(parts["code"], parts["message"], found=parts["found"], expected=parts["expected"], hint=parts["hint"])


def _broke(message: str, found: str, hint: str) -> Failed:
    return Failed("trial_failed", message, found=found, expected="a frame", hint=hint)


def main(folder: str) -> int:
    """Try what lies in a folder, or ask what it declares, and write the answer there."""
    here = Path(folder)
    try:
        answer: dict[str, Any] = {"found": _found(here).model_dump(mode="json")}
    except AnewError as error:
        answer = {"error": {"found": None, "expected": None, "hint": None, **error.to_json()}}
        answer["failed"] = not isinstance(error, InvalidRequest)
    part = here / "answer.part"
    part.write_text(json.dumps(answer, default=str), encoding="utf-8")
    part.rename(here / "answer.json")
    return 0


def _found(here: Path) -> Shape | Declaration:
    from anew.rebuild.jobs.archive import unpack
    from anew.rebuild.jobs.calling import imported
    from anew.spark.session import spark_session

    order = json.loads((here / "order.json").read_text(encoding="utf-8"))
    code = JobCode.model_validate(order["code"])
    unpacked = unpack(code, (here / "archive.zip").read_bytes(), here / "unpacked")
    if "plan" in order:
        return _shape(order, code, unpacked)
    try:
        return declaration_of(imported(code, unpacked.modules))
    except InvalidRequest:
        # A module that makes functions of Spark's needs a session, which takes seconds to start.
        with spark_session("local[1]", {}):
            return declaration_of(imported(code, unpacked.modules))


def _shape(order: dict[str, Any], code: JobCode, unpacked: Unpacked) -> Shape:
    from anew.api.location import LogLocation
    from anew.rebuild.jobs.calling import load
    from anew.rebuild.jobs.trying import Trial, try_function
    from anew.spark.jobs.decoding import InputTask, json_fields
    from anew.spark.session import spark_session

    plan, job = JobPlan.model_validate(order["plan"]), Declaration.model_validate(order["job"])
    try:
        load(code, unpacked, [of.name for of in plan.inputs])
    except InvalidRequest as error:
        # What its parameters are is known before Spark starts, unless its module needs a session.
        if error.code != "import_failed":
            raise
    with spark_session("local[1]", {}) as spark:

        def task(of: JobInput) -> InputTask:
            location = LogLocation.model_validate(order["locations"][of.fabric])
            return InputTask(location, of, json_fields(spark, of.columns))

        inputs = {of.name: task(of) for of in plan.inputs}
        trial = Trial(code, unpacked, inputs, plan.start, job, order["key_schema"], order["value_schema"])
        return try_function(spark, trial)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
