"""Jobs from Python: ``cluster.job(name)``, and how one is submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog

from anew.api.http import ControllerClient
from anew.api.jobs.requests import (
    CreateJob,
    CutOver,
    DropGeneration,
    OfGeneration,
    ReplayDeadLetters,
    RunGeneration,
    UndoRewind,
)
from anew.api.jobs.views import CheckpointsView, CutOverAnswer, JobDiff, JobView, OwnedParts, UndoAnswer
from anew.api.models import BeginRebuild
from anew.api.rebuilds import JobRebuildView, JobStart
from anew.api.waiting import wait_seconds
from anew.client.topics import Topic
from anew.core.errors import AnewError, InvalidRequest, NotFound, Unreachable
from anew.core.jobs.declaration import NOTHING_DECLARED, Declaration
from anew.core.jobs.plan import DEPLOY, PARALLEL, JobPlan, Mode
from anew.rebuild.asking import begun_before
from anew.rebuild.jobs.archive import Packed, environment_here
from anew.runtime.clock import new_id
from anew.runtime.deadrecords import DeadRecord, Replayed, dead_record
from anew.runtime.jobplans import Code, JobPlanner, Start
from anew.runtime.trying import declared_by

_LOG = structlog.get_logger("anew.jobs")
TOPIC = "topic"
_READY_SECONDS, _REST_SECONDS = 30.0, 300.0
_LOOK_SECONDS = 0.2


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
        self._planner = JobPlanner(controller, name)

    def submit(
        self,
        code: Code,
        declared: Declaration = NOTHING_DECLARED,
        start: Start | None = None,
        request_id: str | None = None,
    ) -> JobView:
        """Make the job and its first generation, which does not run yet.

        A crash between the two leaves a job without a generation: the same request again goes on there.

        Args:
            code: Its function.
            declared: What the job is; what the function or its file declares need not be said again.
            start: From where, and how, the first generation runs.
            request_id: The same id with the same request is the same job.

        Raises:
            InvalidRequest: ``not_declared``, ``declared_otherwise``; what is wrong with the name or the function.
            NotFound: ``unknown_topic``.
            Refused: ``job_exists``.
        """
        said, packed = self._planner.packed(code)
        told = code.declared.joined(declared, code.declared_by)
        whole = _declared_by(code, packed, told).joined(told, packed.code.entry)
        request = job_request(self.name, whole, request_id)
        view = self._controller.create_job(request)
        if view.generations:
            return view
        first = None if request_id is None else f"{request_id}/1"
        try:
            self.rewind(self._planner.planned(Start() if start is None else start, (said, packed)), first)
        except AnewError:
            # Nothing was begun: the name shall be free for a function that can be run, or a store that takes it.
            with suppress(AnewError):
                self._controller.delete_job(self.name, only_empty=True)
            raise
        return self.show()

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

    def plan_rewind(self, start: Start | None = None, code: Code | None = None, mode: Mode = PARALLEL) -> JobPlan:
        """What a rewind would begin now; nothing is made.

        Args:
            start: From where, and how it is run.
            code: None: the live generation's.
            mode: ``parallel``: beside the live generation. ``simple``: in its place, into its output.

        Raises:
            NotFound: ``unknown_job``, ``unknown_topic``.
            Refused: ``start_out_of_range``, ``start_incomplete``; of a simple one ``must_be_parallel``.
            InvalidRequest: What is wrong with the code.
        """
        packed = None if code is None else self._planner.packed(code)
        return self._planner.planned(Start() if start is None else start, packed, mode)

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
        packed = None if code is None else self._planner.packed(code)
        return self._planner.planned(Start() if start is None else start, packed, DEPLOY)

    def diff(self, start: Start | None = None, code: Code | None = None) -> JobDiff:
        """What the next generation would change, and which ways to it are open; nothing is made (case F2).

        Raises:
            NotFound: ``unknown_job``.
            Refused: ``nothing_live``.
            InvalidRequest: What is wrong with the code.
        """
        packed = None if code is None else self._planner.packed(code)
        return self._planner.diff(Start() if start is None else start, packed)

    def rewind(self, plan: JobPlan, request_id: str | None = None, why: str | None = None) -> int:
        """Begin what a plan says, and wait until its output is there; it runs when `run` says so.

        Args:
            plan: The plan.
            request_id: The same id with the same request is the same generation.
            why: What people say of it, for the history.

        Returns:
            The number of the generation.

        Raises:
            Refused: ``plan_outdated``, ``rewind_running``; ``generation_runs``, of a plan in the live generation's
                place; ``code_gone``: the plan is old.
        """
        self._planner.check_stored(plan)
        known = new_id() if request_id is None else request_id
        begin = BeginRebuild(plan=plan, request_id=known, driver=self.driver, why=why)
        number = self._controller.begin_rebuild(begin, JobStart).rebuild.generation
        self._planner.keep_stored(plan)
        self._until_made(number)
        return number

    def begun_before(
        self, start: Start, code: Code | None, request_id: str | None, mode: Mode = PARALLEL
    ) -> int | None:
        """The generation that the same request began before; None for a new one, or one without an id (rule R22).

        Raises:
            InvalidRequest: ``request_id_reused``: the id was used for another request.
        """
        packed = None if code is None else self._planner.packed(code)
        view = begun_before(self._controller, request_id, self._planner.asked(start, packed, mode))
        return view.generation if isinstance(view, JobRebuildView) else None

    def run(
        self, generation: int | None = None, *, accept_environment: bool = False, foreground: bool = False
    ) -> JobView:
        """Let a generation run, the live one for None.

        Args:
            generation: Its number.
            foreground: Whether this process is to drive it, by `anew.runtime.connect.Cluster.drive_generation`; the
                controller starts a driver where nobody has begun in a while.
            accept_environment: Go on with the Python and PySpark of this process, although its code was submitted from
                others.

        Raises:
            Refused: ``generation_over``, ``not_ready``.
        """
        environment = environment_here() if accept_environment else None
        request = RunGeneration(generation=generation, environment=environment, foreground=foreground)
        return self._controller.run_job(self.name, request)

    def stop(self, generation: int | None = None) -> JobView:
        """Let a generation end after the batch that it is at.

        Raises:
            Refused: ``generation_over``.
        """
        return self._controller.stop_job(self.name, OfGeneration(generation=generation))

    def deploy(
        self,
        start: Start,
        code: Code | None = None,
        *,
        stop: bool = False,
        request_id: str | None = None,
        why: str | None = None,
    ) -> JobView:
        """Go on with other code where the live generation ended, in its place, and let it run (case F1).

        Args:
            start: How it is run; it names no place.
            code: None: the live generation's.
            stop: Whether to stop the live generation before; the code is tried first, while that still runs.
            request_id: See `rewind`.
            why: Likewise.

        Raises:
            Refused, InvalidRequest, NotFound: As `plan_deploy`.
        """
        number = self.begun_before(start, code, request_id, DEPLOY)
        if number is None:
            packed = None if code is None else self._planner.packed(code)
            if stop:
                packed = self._planner.tried(start, packed)
            with self.at_rest(stop=stop):
                number = self.rewind(self._planner.planned(start, packed, DEPLOY), request_id, why)
        return self.run(number)

    @contextmanager
    def at_rest(self, *, stop: bool) -> Iterator[None]:
        """The live generation at rest, while another one is put into its place; it runs again where that is refused.

        Args:
            stop: Whether to stop it; otherwise nothing is done.

        Raises:
            Unreachable: ``driver_alive``: it goes on.
        """
        if not stop:
            yield
            return
        before = self.show()
        try:
            self.rest()
            yield
        except BaseException:
            # Also where somebody interrupts: a job that was to change its code is not to stand still for it.
            live = next((each for each in before.generations if each.number == before.live), None)
            if live is not None and live.status == "running":
                with suppress(AnewError):
                    self.run(live.number)
            raise

    def rest(self) -> JobView:
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

    def cut_over(
        self,
        generation: int | None = None,
        *,
        force: bool = False,
        when_caught_up: bool = False,
        not_before_ms: int | None = None,
    ) -> CutOverAnswer:
        """Let the generation serve that is to take the live one's place.

        Args:
            generation: Another one.
            force: Also while it has not caught up.
            when_caught_up: Not now, but by itself as soon as it has caught up.
            not_before_ms: Likewise, and not before that time.

        Raises:
            Refused: ``not_caught_up``, ``nothing_to_cut_over``, ``output_not_whole``.
        """
        request = CutOver(
            generation=generation, force=force, when_caught_up=when_caught_up, not_before_ms=not_before_ms
        )
        return self._controller.cut_over(self.name, request)

    def call_off_cut_over(self) -> JobView:
        """Take back what `cut_over` planned; where nothing is planned nothing changes."""
        return self._controller.call_off_cut_over(self.name)

    def undo(self, *, force: bool = False) -> UndoAnswer:
        """Take the last rewind back: drop its generation, or go back to the one before where it was cut over to.

        Raises:
            Refused: ``nothing_to_undo``; ``plan_outdated``: somebody did something meanwhile; ``not_caught_up``, unless
                ``force``.
        """
        view = self.show()
        going = [each.number for each in view.generations if not each.over]
        seen = None if view.live is None or not going else (view.live, max(going))
        return self._controller.undo_rewind(self.name, UndoRewind(force=force, seen=seen))

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


def _declared_by(code: Code, packed: Packed, told: Declaration) -> Declaration:
    """What a function declares; nothing of one that is not to be tried, and cannot be imported here, if all is told."""
    try:
        return declared_by(packed.code, packed.content)
    except AnewError as error:
        if code.trial or not told.inputs or told.output is None:
            raise
        _LOG.warning("declaration_unread", function=packed.code.entry, error=str(error))
        return NOTHING_DECLARED


def job_request(name: str, whole: Declaration, request_id: str | None) -> CreateJob:
    """The request for a job of which all is said.

    Raises:
        InvalidRequest: ``not_declared``.
    """
    topics = {each: of.topic for each, of in whole.inputs.items() if of.topic is not None}
    unread = [f"a topic of the input {each}" for each in whole.inputs if each not in topics]
    missing = unread + [what for what, said in (("an input", whole.inputs), ("an output", whole.output)) if not said]
    if missing or whole.output is None:
        raise InvalidRequest(
            "not_declared",
            f"nothing says what {name} reads and writes",
            found=f"no {' and no '.join(each.partition(' ')[2] for each in missing)}",
            expected=" and ".join(missing),
            hint="--input NAME=TOPIC and --output store:NAME; or declare them at the function, or in a file",
        )
    return CreateJob(
        name=name,
        output=whole.output,
        inputs=topics,
        starts={each: of.start for each, of in whole.inputs.items() if of.start is not None},
        max_lateness_ms=whole.max_lateness_ms,
        request_id=request_id,
    )
