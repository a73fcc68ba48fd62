"""Plans of generations, on the side of who asks: code is packed, tried in a process of its own, and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from anew.api.http import ControllerClient
from anew.api.jobs.requests import PlanGeneration
from anew.api.jobs.views import JobDiff, JobView
from anew.core.errors import InvalidRequest, Refused
from anew.core.jobs.code import JobCode
from anew.core.jobs.deadletters import DEFAULT_LIMIT, MOST_LETTERS, STOP, OnBadRecord
from anew.core.jobs.declaration import NOTHING_DECLARED, Declaration, Input
from anew.core.jobs.places import CODE_FOLDER, PLAN_SECONDS
from anew.core.jobs.plan import MOST_RECORDS, PARALLEL, REWIND, SIMPLE, JobPlan, Mode
from anew.core.jobs.starts import AnyStart, StartAt, start_of
from anew.core.stores.store import newest_schema_id
from anew.deepstore.open import open_deep_store
from anew.rebuild.asking import asked_for
from anew.rebuild.jobs.archive import Packed, changed_files, environment_here, pack
from anew.runtime.trying import Tried, try_out

TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Code:
    """A function as a person names it.

    Attributes:
        entry: ``module:function``, or ``file.py:function``.
        files: Name → path: what it is given beside its frames.
        params: What it is called with; a number or a truth value as text has it, ``{"severe": 30}``.
        trial: Whether it is tried in a process of its own before anything is made.
        declared: What is declared with it, beside what the function itself declares.
        declared_by: Who declares that, for errors.
    """

    entry: str
    files: Mapping[str, Path] = field(default_factory=dict)
    params: Mapping[str, str | float] = field(default_factory=dict)
    trial: bool = True
    declared: Declaration = NOTHING_DECLARED
    declared_by: str = "the submission"


@dataclass(frozen=True, slots=True)
class Start:
    """From where, and how, a generation runs.

    Attributes:
        at: As ``--from`` takes it (``oldest``, ``36h``), input → partition → offset, or a value of
            `anew.core.jobs.starts`; None: the inputs' defaults.
        on_bad_record: What a record does that cannot be read, or on which the function fails: ``stop`` ends the
            generation, ``skip`` leaves it out as a dead letter.
        dead_letter_limit: How many records may be left out, 1 to 1,000.
        clamp: Whether offsets that a log does not hold are moved to the nearest ones that it does.
        from_oldest_available: Whether a start at a time that retention has passed begins at the oldest record.
        hold_retention: Whether the topics of its inputs forget nothing until it has caught up.
    """

    at: AnyStart | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    max_records: int = 100_000
    on_bad_record: OnBadRecord = STOP
    dead_letter_limit: int = DEFAULT_LIMIT
    clamp: bool = False
    from_oldest_available: bool = False
    hold_retention: bool = False

    def __post_init__(self) -> None:
        """Raise where a number is none that a generation can have, or the start is none.

        Raises:
            InvalidRequest: ``bad_option``, ``bad_start``.
        """
        _ = self.begins
        limits = {"max_records": MOST_RECORDS, "dead_letter_limit": MOST_LETTERS}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise InvalidRequest(
                    "bad_option", f"{name} is out of its range", found=getattr(self, name), expected=f"1 to {most}"
                )

    @property
    def begins(self) -> StartAt | None:
        """Where it begins, as the controller is asked for it.

        Raises:
            InvalidRequest: ``bad_start``.
        """
        return None if self.at is None else start_of(self.at)


def job_as_declared(view: JobView) -> Declaration:
    """What a job is, as a declaration would say it."""
    inputs = {name: Input(topic=topic, start=view.starts.get(name)) for name, topic in view.inputs.items()}
    return Declaration(inputs=inputs, output=view.output, max_lateness_ms=view.max_lateness_ms)


def param_text(value: str | float) -> str:
    """A parameter as it is written on a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class JobPlanner:
    """Makes the plans of one job, and keeps their code where drivers find it."""

    def __init__(self, controller: ControllerClient, name: str) -> None:
        """Of the job of a name."""
        self.name = name
        self._controller = controller
        self._packed_here: Packed | None = None

    def packed(self, code: Code) -> tuple[Code, Packed]:
        """Code with its archive.

        Raises:
            InvalidRequest: What is wrong with it before it is tried.
        """
        params = {name: param_text(value) for name, value in code.params.items()}
        return code, pack(code.entry, code.files, params, CODE_FOLDER)

    def planned(self, start: Start, packed: tuple[Code, Packed] | None, mode: Mode = PARALLEL) -> JobPlan:
        """A plan, whose code was tried, and is stored.

        Raises:
            InvalidRequest: ``declared_otherwise``; what is wrong with the code.
        """
        self._check_declared(packed)
        if packed is not None and packed[0].trial:
            # What is refused anyhow is refused before Spark starts. A simple one asks what the trial finds.
            packed = self._tried(packed, self._plan(start, packed[1].code, mode, draft=mode == SIMPLE))
        plan = self._plan(start, None if packed is None else packed[1].code, mode)
        if packed is not None:
            self._store(self._controller.cluster(plan.inputs[0].fabric).deep_store, packed[1])
        return plan.model_copy(update={"asked": self.asked(start, packed, mode)})

    def diff(self, start: Start, packed: tuple[Code, Packed] | None) -> JobDiff:
        """What the next generation would change; of code also which of its modules and files."""
        self._check_declared(packed)
        packed = self.tried(start, packed)
        request = self._request(start, None if packed is None else packed[1].code, PARALLEL)
        found = self._controller.job_diff(self.name, request)
        if packed is None:
            return found
        changes = tuple(
            change.model_copy(update={"wanted": self._changed_files(packed[1])}) if change.what == "code" else change
            for change in found.changes
        )
        return found.model_copy(update={"changes": changes})

    def _changed_files(self, made: Packed) -> dict[str, str] | str:
        """Which modules and files differ from those of the live generation; the archive's hash, where that has gone."""
        view = self._controller.job(self.name)
        live = next((each.rebuild for each in view.generations if each.number == view.live), None)
        plan = None if live is None else self._controller.rebuild(live).plan
        if not isinstance(plan, JobPlan):
            return made.code.archive
        stored = open_deep_store(self._controller.cluster(plan.inputs[0].fabric).deep_store)
        if stored.stat(plan.code.path) is None:
            return made.code.archive
        return changed_files(stored.get(plan.code.path), made.content)

    def _plan(self, start: Start, code: JobCode | None, mode: Mode, *, draft: bool = False) -> JobPlan:
        return self._controller.plan_generation(self.name, self._request(start, code, mode, draft=draft))

    def _request(self, start: Start, code: JobCode | None, mode: Mode, *, draft: bool = False) -> PlanGeneration:
        return PlanGeneration(
            mode=mode,
            draft=draft,
            code=code,
            environment=environment_here(),
            start=start.begins,
            clamp=start.clamp,
            from_oldest_available=start.from_oldest_available,
            master=start.master,
            conf=dict(start.conf),
            max_records=start.max_records,
            on_bad_record=start.on_bad_record,
            dead_letter_limit=start.dead_letter_limit,
            hold_retention=start.hold_retention,
        )

    def tried(self, start: Start, packed: tuple[Code, Packed] | None) -> tuple[Code, Packed] | None:
        """Code that was tried, with what its trial found; what is not to be tried, or was, as it is."""
        if packed is None or not packed[0].trial:
            return packed
        return self._tried(packed, self._plan(start, packed[1].code, PARALLEL, draft=True))

    def _tried(self, packed: tuple[Code, Packed], draft: JobPlan) -> tuple[Code, Packed]:
        """Code that is tried now, with the inputs of a plan that was made for it."""
        said, made = packed
        job = job_as_declared(self._controller.job(self.name))
        fabrics = {of.fabric for of in draft.inputs}
        locations = {f: self._controller.cluster(f).log.model_dump(mode="json") for f in fabrics}
        shape = try_out(Tried(made.code, made.content, draft, job, locations, *self._schemas(draft)))
        code = made.code.model_copy(update={"shape": shape})
        return replace(said, trial=False), replace(made, code=code)

    def _check_declared(self, packed: tuple[Code, Packed] | None) -> None:
        """Raise where a file that names the code declares another job; what the function declares its trial finds."""
        if packed is not None and packed[0].declared != NOTHING_DECLARED:
            packed[0].declared.check_of(job_as_declared(self._controller.job(self.name)), packed[0].declared_by)

    def _store(self, deep_store: str, made: Packed) -> None:
        """Keep an archive under its own hash: the same code is the same file. One that was damaged is replaced."""
        stored, path = open_deep_store(deep_store), made.code.path
        held = None if stored.stat(path) is None else stored.get(path)
        if held is not None and held != made.content:
            stored.delete(path)
        if held != made.content:
            stored.put(path, made.content)
        self._packed_here = made

    def keep_stored(self, plan: JobPlan) -> None:
        """Store the code of a plan that was begun again, if it was made here and has gone meanwhile.

        Upkeep removes what no generation names; it may have looked before this one was there.
        """
        made = self._packed_here
        if made is not None and made.code.path == plan.code.path:
            deep_store = open_deep_store(self._controller.cluster(plan.inputs[0].fabric).deep_store)
            if deep_store.stat(plan.code.path) is None:
                deep_store.put(plan.code.path, made.content)

    def check_stored(self, plan: JobPlan) -> None:
        """Raise where the archive of a plan's code is not there any more."""
        cluster = self._controller.cluster(plan.inputs[0].fabric)
        if open_deep_store(cluster.deep_store).stat(plan.code.path) is None:
            raise Refused(
                "code_gone",
                "the archive of the plan's code is not there any more",
                found=plan.code.path,
                expected=f"a plan that is run within {PLAN_SECONDS // 3600} h",
                hint="make a new plan",
            )

    def asked(self, start: Start, packed: tuple[Code, Packed] | None, mode: Mode) -> str:
        """The hash of all that a request for a generation says."""
        code = None if packed is None else packed[1].code.hash
        begins = start.begins
        said = {
            "at": None if begins is None else begins.model_dump(mode="json"),
            "clamp": start.clamp,
            "from_oldest_available": start.from_oldest_available,
            "master": start.master,
            "conf": dict(start.conf),
            "max_records": start.max_records,
            "on_bad_record": start.on_bad_record,
            "dead_letter_limit": start.dead_letter_limit,
            # Not there where it is not asked for: a request of before means the same.
            **({"hold_retention": True} if start.hold_retention else {}),
        }
        return asked_for(REWIND if mode == PARALLEL else mode, self.name, code=code, start=said)

    def _schemas(self, plan: JobPlan) -> tuple[str | None, str | None]:
        """The schemas of keys and values of what the job writes into."""
        kind, _, name = plan.output.partition(":")
        if kind == TOPIC:
            topic = self._controller.topic(name, facts=False)
            return topic.key_schema, topic.value_schema
        store = self._controller.snapshot(name).store
        return store.key_schema, store.schemas[newest_schema_id(store.schemas)]
