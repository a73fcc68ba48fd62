"""Planning a generation: its inputs as they are, its start resolved against the real logs, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anew.api.jobs.requests import PlanGeneration
from anew.controller.engine.context import Context
from anew.controller.engine.outputs import Opened, Writer
from anew.controller.jobs.inplace import SimpleRewind, check_simple
from anew.controller.jobs.records import check_no_driver, position_of, silent_outputs
from anew.controller.jobs.starting import Asked, Begins, Held, begins_at, settled, times_at
from anew.core.errors import InvalidRequest, NotFound, Refused
from anew.core.jobs.code import JobCode
from anew.core.jobs.deadletters import SKIP
from anew.core.jobs.inputs import JobInput, Offsets, Start, check_start, input_of, next_offset, topics_of, with_added
from anew.core.jobs.job import Job, at_rest, batches_lost, check_begins
from anew.core.jobs.plan import DEPLOY, PARALLEL, SIMPLE, BeginningState, JobFence, JobPlan, Mode
from anew.core.jobs.starts import Oldest
from anew.core.jobs.state import check_carried, check_state_settings, no_skipping
from anew.core.jobs.uses import downstream_of
from anew.core.plan import Estimate
from anew.core.suggest import did_you_mean
from anew.core.topics.topic import TopicFormat
from anew.log.interface import present_partitions

_NO_REBUILD = "planned"
"""The rebuild of a plan that nobody has begun."""


def plan_generation(context: Context, job: Job, request: PlanGeneration) -> JobPlan:
    """The plan of the next generation of a job; nothing is made.

    Raises:
        NotFound: ``unknown_topic``; ``unknown_job``, ``unknown_generation`` of a start.
        Refused: ``topic_not_ready``, ``start_out_of_range``, ``start_incomplete``, ``start_unreachable``,
            ``compacted_topic``, ``input_changed``, ``output_made_again``, ``rewind_running``; what the output refuses.
        InvalidRequest: ``no_code``, ``unknown_input``, ``start_given``.
        Unreachable: A log does not answer: what it holds is never guessed.
    """
    _check_conf(request.conf)
    _check_output(context, job)
    inputs, code = inputs_of(context, job), _code(job, request)
    held = {of.name: held_of(context, of) for of in inputs}
    batch = None
    # What is tried reads nothing: a job that has to be told where it begins is tried all the same.
    is_untold = request.draft and request.start is None and request.mode != DEPLOY
    at = Oldest() if is_untold else request.start
    asked = Asked(at, request.clamp, request.from_oldest_available)
    if request.mode == DEPLOY:
        # A deployment is asked for while the live one runs: what a stop does not mend is refused first.
        check_begins(job, job.next_generation, job.live)
        _check_state(job, request, code, "none")
        start, batch = _end_of_live(context, job, inputs, held, asked)
        begins = Begins(settled(context, inputs, held, start), start)
    else:
        begins = begins_at(context, inputs, held, asked)
    held, start = begins.held, begins.start
    _check_held(held, start)
    is_whole = _whole(job, request.mode, start)
    notes = _notes(context, job)
    if request.mode == SIMPLE and not request.draft:
        notes = (*check_simple(context, job, code, SimpleRewind(inputs, start, request.on_bad_record)), *notes)
    state = _beginning_state(context, job, request.mode)
    _check_state(job, request, code, state)
    records = sum(held[name][p].end - offset for name, of in start.items() for p, offset in of.items())
    plan = JobPlan(
        mode=request.mode,
        job=job.name,
        generation=job.next_generation,
        code=code,
        inputs=inputs,
        start=start,
        start_times=times_at(context, inputs, held, start),
        begins=begins.said,
        state=state,
        base="empty" if request.mode == PARALLEL else "present",
        output=str(job.output),
        is_whole=is_whole,
        replaces=job.live,
        master=request.master,
        conf=request.conf,
        max_records=request.max_records,
        on_bad_record=request.on_bad_record,
        dead_letter_limit=request.dead_letter_limit,
        hold_retention=request.hold_retention,
        unreachable=begins.unreachable,
        downstream=downstream_of(job, request.mode, context.catalog.jobs()),
        why=(
            *begins.why,
            *_why(job, request.mode, is_whole=is_whole),
            *_why_nothing(request.mode, records, held),
            *_why_asked(request, inputs, code, start),
            *_why_untried(job, request.mode),
            *notes,
        ),
        estimate=Estimate(records=records, bytes=0, seconds=None),
        fence=JobFence(job_uid=job.uid, live=job.live, batch=batch),
    ).sealed()
    if not request.draft:
        # What would be refused then is refused now.
        check_begins(job, plan.generation, plan.replaces)
        _try_output(context, job, plan, begins)
    return plan


def _why_untried(job: Job, mode: Mode) -> tuple[str, ...]:
    live = job.live_generation() if mode == DEPLOY else None
    if live is None or live.code.shape is not None or live.stateless:
        return ()
    return (f"nobody has tried the code of generation {live.number}: if it keeps state, that is not carried on",)


def _try_output(context: Context, job: Job, plan: JobPlan, begins: Begins) -> None:
    """Raise what the output would refuse, with what was chosen in place of what was asked for: it may be just that.

    Raises:
        Refused: As `open_output`.
    """
    try:
        open_output(context, job, plan, _NO_REBUILD)
    except Refused as error:
        found = "; ".join((str(error.found), *begins.why))
        raise Refused(error.code, error.message, found=found, expected=error.expected, hint=error.hint) from error


def open_output(context: Context, job: Job, plan: JobPlan, rebuild: str) -> Opened:
    """The output of a planned generation, which is made once that is committed.

    Raises:
        Refused: What the output refuses.
    """
    before = None if plan.replaces is None else job.generation(plan.replaces).writes_to
    origin = job.origin_of(plan.generation)
    writer = Writer(
        origin,
        job.output.name,
        before,
        plan.is_whole,
        rebuild=rebuild,
        goes_on=plan.in_place,
        wrote_before=frozenset(each.writes_to for each in job.generations),
        silent=silent_outputs(context),
    )
    return context.outputs.of_kind(job.output.kind).open(context, writer)


def check_plan(context: Context, job: Job, plan: JobPlan) -> None:
    """Raise unless what a plan says of inputs and start is so: whoever made it may have changed it.

    Raises:
        Refused: ``plan_outdated``; ``start_out_of_range``, ``start_incomplete``, ``output_made_again``.
        NotFound, Unreachable: As `plan_generation`.
    """
    _check_output(context, job)
    inputs = inputs_of(context, job)
    is_whole, state = _whole(job, plan.mode, plan.start), _beginning_state(context, job, plan.mode)
    if plan.inputs != inputs or (plan.is_whole, plan.state, plan.output) != (is_whole, state, str(job.output)):
        raise _outdated(
            f"inputs {[of.topic_uid for of in plan.inputs]}, whole {plan.is_whole}, state {plan.state}",
            f"inputs {[of.topic_uid for of in inputs]}, whole {is_whole}, state {state}",
        )
    new = [note for note in _notes(context, job) if note not in plan.why]
    if new:
        # What the output does with its records is not what somebody agreed to.
        raise _outdated("; ".join(new), "what the plan says of the output")
    held = {of.name: held_of(context, of) for of in inputs}
    if plan.mode == DEPLOY:
        start, batch = _end_of_live(context, job, inputs, held, Asked(None))
        if (plan.start, plan.fence.batch) != (start, batch):
            raise _outdated(f"a start behind batch {plan.fence.batch}", f"behind batch {batch}")
    if plan.mode == SIMPLE:
        check_no_driver(context, job, at_rest(job))
        check_simple(context, job, plan.code, SimpleRewind(inputs, plan.start, plan.on_bad_record))
    _check_held(settled(context, inputs, held, plan.start), plan.start)


def _notes(context: Context, job: Job) -> tuple[str, ...]:
    before = None if job.live is None else job.generation(job.live).writes_to
    return context.outputs.of_kind(job.output.kind).notes(context, job.output.name, before)


def _check_held(held: Mapping[str, Held], start: Mapping[str, Offsets]) -> None:
    """Raise unless the logs hold a start.

    Raises:
        Refused: ``start_out_of_range``, ``start_incomplete``.
    """
    for name, of_input in held.items():
        begins, ends = {p: each.begin for p, each in of_input.items()}, {p: each.end for p, each in of_input.items()}
        check_start(name, start.get(name, {}), begins, ends)


def _outdated(found: str, expected: str) -> Refused:
    return Refused(
        "plan_outdated",
        "what the plan was made from has changed",
        found=found,
        expected=expected,
        hint="make a new plan",
    )


def _whole(job: Job, mode: Mode, start: Mapping[str, Offsets]) -> bool:
    if mode != PARALLEL:
        return job.live_generation().is_whole
    return _from_first(start)


def _from_first(start: Mapping[str, Offsets]) -> bool:
    """Whether a start is at the first record that each partition ever had."""
    return all(offset == 0 for of in start.values() for offset in of.values())


def _beginning_state(context: Context, job: Job, mode: Mode) -> BeginningState:
    """Whether a generation may keep state, which begins empty.

    What goes on in an output by keys may write under other keys than the one before: of records that were late then, or
    of a part of history alone. What that one wrote would stay.
    """
    by_key = context.outputs.of_kind(job.output.kind).by_key
    return "none" if mode == DEPLOY or (mode == SIMPLE and by_key) else "empty"


def _check_state(job: Job, request: PlanGeneration, code: JobCode, state: BeginningState) -> None:
    """Raise where code that is known to keep state cannot be run so.

    Raises:
        InvalidRequest: ``state_not_carried``, ``state_skips_nothing``.
    """
    if state == "none":
        check_carried(job.name, request.mode, before=job.live_generation().code.state, after=code.state)
    if code.state and request.on_bad_record == SKIP:
        raise no_skipping(code.state)


def _why_asked(
    request: PlanGeneration, inputs: tuple[JobInput, ...], code: JobCode, start: Mapping[str, Offsets]
) -> Iterator[str]:
    """What is said of the function and of what was asked for."""
    if code.state:
        said = "" if _from_first(start) else ", and knows nothing of the records before its start"
        yield f"it keeps state ({', '.join(code.state)}), which begins empty{said}"
    if request.hold_retention:
        topics = ", ".join(sorted({of.topic for of in inputs}))
        yield f"{topics} forget nothing until it has caught up: mind their disks"
    if request.on_bad_record == SKIP:
        most = request.dead_letter_limit
        yield f"a record on which it fails is left out as a dead letter, at most {most} of them"
    else:
        yield "a record on which it fails stops it"


def _end_of_live(
    context: Context, job: Job, inputs: tuple[JobInput, ...], held: Mapping[str, Held], asked: Asked
) -> tuple[dict[str, Offsets], int | None]:
    """Where the live generation ended, in all inputs, and its last batch; a partition that it did not know yet begins.

    Raises:
        InvalidRequest: ``start_given``.
        Refused: ``generation_runs``, ``nothing_live``, ``driver_alive``; ``input_changed``: it read another topic
            (case B8); ``batches_lost``, ``rewind_unfinished``: where it ended is not known, or behind others.
    """
    if asked != Asked(None):
        raise InvalidRequest(
            "start_given",
            "a deployment goes on where the live generation ended",
            found=f"a start: {asked.at}",
            expected="no start",
            hint=f"to begin elsewhere: anew job rewind {job.name}",
        )
    live = job.live_generation()
    read, reads = topics_of(live.inputs), topics_of(inputs)
    if read != reads:
        raise Refused(
            "input_changed",
            f"{job.name}@{live.number} read other topics than are there now: its positions mean nothing in them",
            found=reads,
            expected=read,
            hint=f"anew job rewind {job.name}",
        )
    if live.unrecorded:
        raise batches_lost(job, live)
    check_no_driver(context, job, at_rest(job))
    last = context.catalog.batches(job.uid, live.number, 1)
    ended = with_added(last[-1].end if last else live.start, held)
    _check_come_back(context, job, ended)
    return ended, last[-1].batch if last else None


def _check_come_back(context: Context, job: Job, ended: Mapping[str, Offsets]) -> None:
    """Raise while a rewind in place has not come back to where the generation before it had come.

    What that one wrote of the records in between would stay: other code reads them in a rewind, which is judged so.

    Raises:
        Refused: ``rewind_unfinished``.
    """
    for before in job.line()[1:]:
        reached = position_of(context, job, before)
        for name, of in ended.items():
            for partition, offset in of.items():
                if offset < next_offset(reached.get(name, {}), partition):
                    raise Refused(
                        "rewind_unfinished",
                        f"{job.name}@{job.live} reads again what generation {before.number} had read",
                        found=f"offset {offset} of partition {partition} of {name}",
                        expected=f"offset {next_offset(reached.get(name, {}), partition)}, to which that one had come",
                        hint=f"let it come there: anew job run {job.name}; or anew job rewind {job.name} --simple",
                    )


def inputs_of(context: Context, job: Job) -> tuple[JobInput, ...]:
    """The inputs of a job as their topics are now.

    Raises:
        NotFound: ``unknown_topic``.
        Refused: ``topic_not_ready``.
    """
    return tuple(_input(context, name, topic, job.start_of(name)) for name, topic in sorted(job.inputs.items()))


def held_of(context: Context, of: JobInput) -> Held:
    """What the log holds of each partition of an input, of all that there are now (case B7).

    Raises:
        Failed: ``topic_lost``: the topic was made again (case B8).
        Unreachable: The log does not answer.
    """
    log = context.fabrics[of.fabric].log
    return {at.partition: log.offsets(at) for at in present_partitions(log, of.topic, of.topic_uid)}


def _input(context: Context, name: str, topic_name: str, default_start: Start) -> JobInput:
    topic = context.catalog.topic(topic_name)
    if topic is None:
        known = [other.name for other in context.catalog.topics()]
        raise NotFound(
            "unknown_topic",
            f"the input {name} names a topic that is not there",
            found=topic_name,
            expected=", ".join(known) or "none is there yet",
            hint=did_you_mean(topic_name, known) or "anew topic create",
        )
    if not topic.ready:
        raise Refused(
            "topic_not_ready",
            f"the topic {topic_name} is being made",
            found="it is announced",
            expected="a topic that is ready",
            hint="try again in a moment",
        )
    if topic.format is TopicFormat.JSON and topic.columns is None:
        raise Refused(
            "no_columns",
            f"the topic {topic_name} does not say what its JSON values hold",
            found="no columns",
            expected="columns, such as user STRING, n INT",
            hint="make a topic with --columns",
        )
    return input_of(name, topic, default_start)


def _check_output(context: Context, job: Job) -> None:
    """Raise where something else has the name of the job's output by now (rule R16)."""
    found = context.outputs.of_kind(job.output.kind).uid_of(context, job.output.name)
    if found != job.output.uid:
        raise Refused(
            "output_made_again",
            f"{job.output} is not the one that {job.name} was made for: that was deleted",
            found=found,
            expected=job.output.uid,
            hint=f"make another job for it, and delete this one: anew job delete {job.name}",
        )


def _check_conf(conf: Mapping[str, str]) -> None:
    """Raise where Spark would keep state otherwise, or run tasks twice at once: a killed copy may have appended."""
    check_state_settings(conf)
    if conf.get("spark.speculation", "false").strip().lower() != "false":
        raise InvalidRequest(
            "bad_conf",
            "a job's tasks are not run twice at once",
            found=f"spark.speculation={conf['spark.speculation']}",
            expected="spark.speculation=false",
        )


def _code(job: Job, request: PlanGeneration) -> JobCode:
    if request.code is not None:
        return request.code
    live = None if job.live is None else job.generation(job.live)
    if live is None:
        raise InvalidRequest(
            "no_code",
            f"{job.name} has no live generation whose code could be taken",
            found="no code",
            expected="code: module:function, or file.py:function",
            hint=f"anew job rewind {job.name} FUNCTION",
        )
    return live.code if request.environment is None else live.code.frozen_in(request.environment)


def _why_nothing(mode: Mode, records: int, held: Mapping[str, Held]) -> tuple[str, ...]:
    """What is said of a rewind that reads nothing of the history that there is."""
    is_history = any(each.end > each.begin for of in held.values() for each in of.values())
    is_passed = mode != DEPLOY and records == 0 and is_history
    return ("it reads none of the records that are there now: --from oldest reads history",) if is_passed else ()


def _why(job: Job, mode: Mode, *, is_whole: bool) -> tuple[str, ...]:
    if mode == DEPLOY:
        return (
            f"it goes on where generation {job.live} ended, in its place and into its output",
            "nothing is processed again: what was written stays as it is",
        )
    if mode == SIMPLE:
        return (
            f"it takes the place of generation {job.live}, and writes into its output: that one has to be stopped",
            "what arrives meanwhile waits until the history is processed",
            "what was written stays until it is written again, and there is no way back",
        )
    takes = f"it runs beside generation {job.live}, with an output of its own" if job.live else "it is the first"
    base = (
        "it reads its inputs from their first records"
        if is_whole
        else (
            "it does not read all that its inputs ever had: it may run, and not be cut over to"
            if job.live
            else "what was written before its start is not in its output"
        )
    )
    return (takes, base)
