"""Jobs from Python: ``cluster.job(name)``, and how one is submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from anew.api.http import ControllerClient
from anew.api.jobs.requests import (
    CreateJob,
    CutOver,
    DropGeneration,
    OfGeneration,
    PlanGeneration,
    ReplayDeadLetters,
    RunGeneration,
    UndoRewind,
)
from anew.api.jobs.views import CheckpointsView, CutOverAnswer, JobView, OwnedParts, UndoAnswer
from anew.api.models import BeginRebuild
from anew.api.rebuilds import JobRebuildView, JobStart
from anew.api.waiting import wait_seconds
from anew.client.topics import Topic
from anew.core.errors import AnewError, InvalidRequest, NotFound, Refused, Unreachable
from anew.core.jobs.code import JobCode
from anew.core.jobs.deadletters import DEFAULT_LIMIT, MOST_LETTERS, STOP, OnBadRecord
from anew.core.jobs.places import CODE_FOLDER, PLAN_SECONDS
from anew.core.jobs.plan import DEPLOY, MOST_RECORDS, PARALLEL, REWIND, JobPlan, Mode
from anew.core.jobs.starts import AnyStart, StartAt, start_of
from anew.core.stores.store import newest_schema_id
from anew.deepstore.open import open_deep_store
from anew.rebuild.asking import asked_for, begun_before
from anew.rebuild.jobs.archive import Packed, environment_here, pack
from anew.runtime.clock import new_id
from anew.runtime.deadrecords import DeadRecord, Replayed, dead_record
from anew.runtime.trying import Tried, try_out

TOPIC = "topic"
_READY_SECONDS, _REST_SECONDS = 30.0, 300.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Code:
    """A function as a person names it.

    Attributes:
        entry: ``module:function``, or ``file.py:function``.
        files: Name → path: what it is given beside its frames.
        params: What it is called with.
        trial: Whether it is tried in a process of its own before anything is made.
    """

    entry: str
    files: Mapping[str, Path] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    trial: bool = True


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
    """

    at: AnyStart | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    max_records: int = 100_000
    on_bad_record: OnBadRecord = STOP
    dead_letter_limit: int = DEFAULT_LIMIT
    clamp: bool = False
    from_oldest_available: bool = False

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


class JobHandle:
    """A stream job of a running cluster."""

    def __init__(
        self, controller: ControllerClient, name: str, driver: str, topic: Callable[[str], Topic] | None = None
    ) -> None:
        """Use `anew.runtime.connect.Cluster.job`."""
        self.name = name
        self._topic = topic
        self._controller = controller
        self.driver = driver
        self._packed_here: Packed | None = None

    def show(self) -> JobView:
        """Its generations, where they stand, and how far behind.

        Raises:
            NotFound: ``unknown_job``.
        """
        return self._controller.job(self.name)

    def checkpoints(self, generation: int | None = None) -> CheckpointsView:
        """Where its generations stand in their inputs, those that are not over for None; nothing is written.

        Raises:
            NotFound: ``unknown_job``, ``unknown_generation``.
        """
        return self._controller.checkpoints(self.name, generation)

    def dead_letters(self, generation: int | None = None, limit: int = 100) -> list[DeadRecord]:
        """The first records that a generation, or (None) any, has left out, with what the logs still hold of them.

        Raises:
            NotFound: ``unknown_job``, ``unknown_generation``.
        """
        found = self._controller.job_dead_letters(self.name, generation, limit)
        topics = {of: self._topic_of(*of) for of in {(letter.topic, letter.topic_uid) for letter in found}}
        return [dead_record(letter, topics[letter.topic, letter.topic_uid]) for letter in found]

    def replay(self, generation: int | None = None, *, as_new: bool = False) -> Replayed:
        """Give the records of a generation's dead letters to their topics again, those that were not yet.

        Each comes at the end of its partition with its key and the time of its writing, which decides against anything
        younger; whatever generations follow the topic process it.

        Args:
            generation: None: the only one with dead letters that were not replayed.
            as_new: Also records of topics without write times: they get the time of now, and win over younger ones.

        Raises:
            NotFound: ``unknown_job``, ``unknown_generation``.
            Refused: ``which_generation``, ``replay_would_win``.
        """
        after, replayed, gone, unreadable = None, 0, 0, 0
        while True:
            request = ReplayDeadLetters(generation=generation, as_new=as_new, after=after)
            answer = self._controller.replay_dead_letters(self.name, request)
            replayed, gone = replayed + answer.replayed, gone + answer.gone
            unreadable += answer.unreadable
            generation, after = answer.generation, answer.next
            if after is None:
                return Replayed(answer.generation, replayed, gone, unreadable)

    def _topic_of(self, name: str, uid: str) -> Topic | None:
        """A topic of that name, if it still is the one of that identity."""
        if self._topic is None:
            return None
        with suppress(NotFound):
            topic = self._topic(name)
            return topic if topic.view.topic_uid == uid else None
        return None

    def plan_rewind(self, start: Start | None = None, code: Code | None = None) -> JobPlan:
        """What a rewind would begin now; nothing is made.

        Raises:
            NotFound: ``unknown_job``, ``unknown_topic``.
            Refused: ``start_out_of_range``, ``start_incomplete``.
            InvalidRequest: What is wrong with the code.
        """
        return self._planned(Start() if start is None else start, None if code is None else self._packed(code))[0]

    def plan_deploy(self, start: Start | None = None, code: Code | None = None) -> JobPlan:
        """What a deployment of other code would begin now: it goes on where the live generation ended (case F1).

        Args:
            start: How it is run; it names no place.
            code: None: the live generation's.

        Raises:
            NotFound: ``unknown_job``.
            Refused: ``generation_runs``, ``driver_alive``, ``nothing_live``, ``input_changed``, ``start_out_of_range``.
            InvalidRequest: What is wrong with the code.
        """
        packed = None if code is None else self._packed(code)
        return self._planned(Start() if start is None else start, packed, DEPLOY)[0]

    def rewind(self, plan: JobPlan, request_id: str | None = None) -> int:
        """Begin what a plan says, and wait until its output is there; it runs when `run` says so.

        Returns:
            The number of the generation.

        Raises:
            Refused: ``plan_outdated``, ``rewind_running``; ``code_gone``: the plan is old.
        """
        self._check_stored(plan)
        begin = BeginRebuild(plan=plan, request_id=new_id() if request_id is None else request_id, driver=self.driver)
        number = self._controller.begin_rebuild(begin, JobStart).rebuild.generation
        made = self._packed_here
        if made is not None and made.code.path == plan.code.path:
            # Upkeep removes what no generation names; it may have looked before this one was there.
            deep_store = open_deep_store(self._controller.cluster(plan.inputs[0].fabric).deep_store)
            if deep_store.stat(plan.code.path) is None:
                deep_store.put(plan.code.path, made.content)
        self._until_made(number)
        return number

    def begun_before(
        self, start: Start, code: Code | None, request_id: str | None, mode: Mode = PARALLEL
    ) -> int | None:
        """The generation that the same request began before; None for a new one, or one without an id (rule R22).

        Raises:
            InvalidRequest: ``request_id_reused``: the id was used for another request.
        """
        packed = None if code is None else self._packed(code)
        view = begun_before(self._controller, request_id, self._asked(start, packed, mode))
        return view.generation if isinstance(view, JobRebuildView) else None

    def run(self, generation: int | None = None, *, accept_environment: bool = False) -> JobView:
        """Let a generation run, the live one for None.

        Args:
            generation: Its number.
            accept_environment: Go on with the Python and PySpark of this process, although its code was submitted from
                others.

        Raises:
            Refused: ``generation_over``, ``not_ready``.
        """
        environment = environment_here() if accept_environment else None
        return self._controller.run_job(self.name, RunGeneration(generation=generation, environment=environment))

    def stop(self, generation: int | None = None) -> JobView:
        """Let a generation end after the batch that it is at.

        Raises:
            Refused: ``generation_over``.
        """
        return self._controller.stop_job(self.name, OfGeneration(generation=generation))

    def deploy(
        self, start: Start, code: Code | None = None, *, stop: bool = False, request_id: str | None = None
    ) -> JobView:
        """Go on with other code where the live generation ended, in its place, and let it run (case F1).

        Args:
            start: How it is run; it names no place.
            code: None: the live generation's.
            stop: Whether to stop the live generation before; the code is tried first, while that still runs.
            request_id: See `rewind`.

        Raises:
            Refused, InvalidRequest, NotFound: As `plan_deploy`.
        """
        number = self.begun_before(start, code, request_id, DEPLOY)
        if number is None:
            if stop:
                if code is not None and code.trial:
                    self.plan_rewind(start, code)
                    code = replace(code, trial=False)
                self._rest()
            number = self.rewind(self.plan_deploy(start, code), request_id)
        return self.run(number)

    def _rest(self) -> JobView:
        """Stop the live generation, and wait until its driver has ended.

        Raises:
            Unreachable: ``driver_alive``: it goes on.
        """
        self.stop()
        waited = 0.0
        while waited < _REST_SECONDS:
            view = self.show()
            if not any(each.number == view.live and each.driver for each in view.generations):
                return view
            wait_seconds(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
        raise Unreachable(
            "driver_alive",
            f"the driver of the live generation of {self.name} has not ended",
            found="it gives signs of life",
            expected=f"an end within {_REST_SECONDS:g} s",
            hint=f"anew job logs {self.name}",
        )

    def cut_over(self, generation: int | None = None, *, force: bool = False) -> CutOverAnswer:
        """Let the generation serve that is to take the live one's place.

        Raises:
            Refused: ``not_caught_up``, ``nothing_to_cut_over``, ``output_not_whole``.
        """
        return self._controller.cut_over(self.name, CutOver(generation=generation, force=force))

    def undo(self, *, force: bool = False) -> UndoAnswer:
        """Take the last rewind back: drop its generation, or go back to the one before where it was cut over to.

        Raises:
            Refused: ``nothing_to_undo``; ``not_caught_up``, unless ``force``.
        """
        return self._controller.undo_rewind(self.name, UndoRewind(force=force))

    def owned(self, generation: int) -> OwnedParts:
        """What goes with a generation when it is dropped, with sizes, and why it stays, if it does.

        Raises:
            NotFound: ``unknown_generation``.
        """
        return self._controller.owned_by_generation(self.name, generation)

    def drop(self, generation: int, *, force: bool = False) -> JobView:
        """Retire a generation that is not live.

        Args:
            generation: Its number.
            force: Also one that could be cut back to: there is no way back then.

        Raises:
            Refused: ``generation_live``, ``can_be_cut_back_to``.
        """
        return self._controller.drop_generation(self.name, DropGeneration(generation=generation, force=force))

    def delete(self) -> None:
        """Delete the job.

        Raises:
            Refused: ``job_runs``.
        """
        self._controller.delete_job(self.name)

    def begin_first(self, code: Code, packed: Packed, start: Start, request_id: str | None) -> JobView:
        """Plan and begin the first generation: tried, stored, and its output made.

        Raises:
            InvalidRequest: What is wrong with the function.
        """
        plan, _ = self._planned(start, (code, packed))
        self.rewind(plan, request_id)
        return self.show()

    def _packed(self, code: Code) -> tuple[Code, Packed]:
        return code, pack(code.entry, code.files, code.params, CODE_FOLDER)

    def _planned(
        self, start: Start, packed: tuple[Code, Packed] | None, mode: Mode = PARALLEL
    ) -> tuple[JobPlan, JobCode | None]:
        code = None if packed is None else packed[1].code
        request = PlanGeneration(
            mode=mode,
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
        )
        plan = self._controller.plan_generation(self.name, request)
        plan = plan.model_copy(update={"asked": self._asked(start, packed, mode)})
        if packed is not None:
            said, made = packed
            cluster = self._controller.cluster(plan.inputs[0].fabric)
            if said.trial:
                fabrics = {of.fabric for of in plan.inputs}
                locations = {f: self._controller.cluster(f).log.model_dump(mode="json") for f in fabrics}
                try_out(Tried(made.code, made.content, plan, locations, *self._schemas(plan)))
            self._store(cluster.deep_store, made)
        return plan, code

    def _store(self, deep_store: str, made: Packed) -> None:
        """Keep an archive under its own hash: the same code is the same file. One that was damaged is replaced."""
        stored, path = open_deep_store(deep_store), made.code.path
        held = None if stored.stat(path) is None else stored.get(path)
        if held is not None and held != made.content:
            stored.delete(path)
        if held != made.content:
            stored.put(path, made.content)
        self._packed_here = made

    def _check_stored(self, plan: JobPlan) -> None:
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

    def _asked(self, start: Start, packed: tuple[Code, Packed] | None, mode: Mode) -> str:
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

    def _until_made(self, number: int) -> JobView:
        waited = 0.0
        while waited < _READY_SECONDS:
            view = self.show()
            if any(each.number == number and each.status != "planned" for each in view.generations):
                return view
            wait_seconds(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
        raise Unreachable(
            "output_not_made",
            f"the controller has not made what {self.name}@{number} writes into",
            found="it is planned",
            expected=f"an output within {_READY_SECONDS:g} s",
            hint=f"is the log there? anew status; then: anew job show {self.name}",
        )


def submit(controller: ControllerClient, driver: str, request: CreateJob, code: Code, start: Start) -> JobView:
    """Make a job and its first generation, which does not run yet.

    A crash between the two leaves a job without a generation: the same request again goes on there.

    Raises:
        InvalidRequest: What is wrong with the name, the output or the function.
        NotFound: ``unknown_topic``.
        Refused: ``job_exists``.
    """
    handle = JobHandle(controller, request.name, driver)
    # What is wrong with the code itself is known before anything is made.
    packed = pack(code.entry, code.files, code.params, CODE_FOLDER)
    view = controller.create_job(request)
    if view.generations:
        return view
    first = None if request.request_id is None else f"{request.request_id}/1"
    try:
        return handle.begin_first(code, packed, start, first)
    except AnewError:
        # Nothing was begun: the name shall be free for a function that can be run, or a store that takes it.
        with suppress(AnewError):
            controller.delete_job(request.name, only_empty=True)
        raise
