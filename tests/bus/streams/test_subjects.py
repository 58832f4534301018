import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import CLUSTER, eco, one_of_each, power
from joulie_bus.events import EVENT_TYPES, AnyEvent
from joulie_bus.streams.channels import CHANNELS
from joulie_bus.streams.subjects import (
    MERGE_ORDER,
    PATTERNS,
    Stream,
    Subjects,
    agent_name,
    escape,
    stream_of,
    unescape,
)

NAMES = st.text(min_size=1)
EXAMPLES = [pytest.param(event, id=event.TYPE) for event in one_of_each(node="gpu-07.lab")]
SUBJECTS = {
    "telemetry.sampled": "joulie.tel.test.gpu-07=2Elab",
    "inventory.read": "joulie.tel.test.gpu-07=2Elab",
    "caps.applied": "joulie.tel.test.gpu-07=2Elab",
    "caps.refused": "joulie.tel.test.gpu-07=2Elab",
    "pods.used": "joulie.tel.test.gpu-07=2Elab",
    "caps.settable": "joulie.agent.test.gpu-07=2Elab",
    "node.seen": "joulie.obs.test.node.gpu-07=2Elab",
    "node.gone": "joulie.obs.test.node.gpu-07=2Elab",
    "hardware.discovered": "joulie.obs.test.hardware.gpu-07=2Elab",
    "facility.polled": "joulie.obs.test.facility.hall-1",
    "grid.price": "joulie.obs.test.grid.=2A",
    "grid.intensity": "joulie.obs.test.grid.=2A",
    "target.set": "joulie.obs.test.target.evening",
    "caps.measured": "joulie.obs.test.caps.standard",
    "gpu.seen": "joulie.obs.test.gpu.GPU-5ab1",
    "gpu.gone": "joulie.obs.test.gpu.GPU-5ab1",
    "device.seen": "joulie.obs.test.device.GPU-5ab1",
    "device.gone": "joulie.obs.test.device.GPU-5ab1",
    "devices.asked": "joulie.obs.test.devices.team=2Ftemplate=2Feight",
    "namespace.seen": "joulie.obs.test.namespace.team",
    "pod.pending": "joulie.obs.test.pod.pod-1",
    "pod.bound": "joulie.obs.test.pod.pod-1",
    "pod.finished": "joulie.obs.test.pod.pod-1",
    "pod.gone": "joulie.obs.test.pod.pod-1",
    "plan.made": "joulie.plan.test._meta",
    "plan.profile-assigned": "joulie.plan.test.gpu-07=2Elab",
    "plan.draining-begun": "joulie.plan.test.gpu-07=2Elab",
    "plan.caps-set": "joulie.plan.test.gpu-07=2Elab",
    "plan.transition-completed": "joulie.plan.test.gpu-07=2Elab",
    "plan.sleep-ordered": "joulie.plan.test.gpu-07=2Elab",
    "plan.wake-ordered": "joulie.plan.test.gpu-07=2Elab",
    "plan.eviction-ordered": "joulie.plan.test.gpu-07=2Elab",
    "plan.placement-closed": "joulie.plan.test.gpu-07=2Elab",
    "plan.placement-opened": "joulie.plan.test.gpu-07=2Elab",
    "plan.resize-ordered": "joulie.plan.test.gpu-07=2Elab",
    "plan.resized": "joulie.plan.test.gpu-07=2Elab",
    "plan.resize-refused": "joulie.plan.test.gpu-07=2Elab",
    "claim.made": "joulie.claim.test.GPU-5ab1",
    "claim.confirmed": "joulie.claim.test.GPU-5ab1",
    "claim.released": "joulie.claim.test.GPU-5ab1",
    "decision.settings-declared": "joulie.dec.test.extender-0",
    "decision.filter": "joulie.dec.test.extender-0",
    "decision.prioritize": "joulie.dec.test.extender-0",
    "decision.preempt": "joulie.dec.test.extender-0",
    "decision.fallback": "joulie.dec.test.extender-0",
    "decision.dropped": "joulie.dec.test.extender-0",
    "decision.promise-key": "joulie.dec.test.extender-0",
    "decision.promise": "joulie.dec.test.extender-0",
    "decision.bind": "joulie.dec.test.extender-0",
    "decision.outcome": "joulie.dec.test.projector",
    "decision.set-back": "joulie.dec.test.projector",
}


def takes(pattern: str, subject: str) -> bool:
    """What the broker does: a star is one token."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+"), subject) is not None


def stores(stream: Stream, subject: str) -> bool:
    return any(takes(pattern, subject) for pattern in CLUSTER.patterns(stream))


@given(NAMES)
@settings(deadline=None)
def test_a_name_comes_back_from_its_token(name: str) -> None:
    assert unescape(escape(name)) == name


@given(NAMES)
@settings(deadline=None)
def test_any_name_is_one_token_that_a_broker_takes(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9=-]+", escape(name))


@given(NAMES)
@settings(deadline=None)
def test_no_node_can_pass_for_the_plan_itself(name: str) -> None:
    assert CLUSTER.of(eco(name)) != CLUSTER.plan_meta


def test_an_empty_name_has_no_token() -> None:
    with pytest.raises(ValueError, match="empty name"):
        escape("")


def test_the_examples_cover_every_event_there_is() -> None:
    assert [type(event) for event in one_of_each()] == list(EVENT_TYPES)
    assert list(SUBJECTS) == [cls.TYPE for cls in EVENT_TYPES]


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_has_its_one_subject(event: AnyEvent) -> None:
    assert CLUSTER.of(event, "extender-0") == SUBJECTS[event.TYPE]


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_is_taken_by_its_own_stream_alone(event: AnyEvent) -> None:
    subject = CLUSTER.of(event, "extender-0")
    taking = [stream for stream in Stream if stores(stream, subject)]

    assert taking == [stream_of(event)]


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_of_another_cluster_is_taken_by_no_stream_of_ours(event: AnyEvent) -> None:
    subject = Subjects("other").of(event, "extender-0")

    assert not any(stores(stream, subject) for stream in Stream)


@pytest.mark.parametrize(
    ("subject", "streams"),
    [
        (CLUSTER.heads, [Stream.HEADS]),
        (CLUSTER.plan_meta, [Stream.PLAN]),
        (CLUSTER.delta, []),
        (CLUSTER.beat, []),
    ],
)
def test_live_messages_are_stored_nowhere(subject: str, streams: list[Stream]) -> None:
    assert [stream for stream in Stream if stores(stream, subject)] == streams


def test_no_two_streams_want_the_same() -> None:
    patterns = [pattern for stream in Stream for pattern in CLUSTER.patterns(stream)]

    assert len(set(patterns)) == len(patterns) == len(PATTERNS)


def fits(address: str, subject: str) -> bool:
    """An escaped name has no underscore."""
    return re.fullmatch(re.sub(r"\\{\w+\\}", "[^._]+", re.escape(address)), subject) is not None


@pytest.mark.parametrize("event", EXAMPLES)
def test_a_channel_lists_the_events_that_its_subjects_carry(event: AnyEvent) -> None:
    producers = ("extender-0", agent_name("gpu-07.lab"))
    carrying = {
        channel.address
        for channel in CHANNELS
        for producer in producers
        if fits(channel.address, CLUSTER.of(event, producer))
    }

    assert {each.address for each in CHANNELS if type(event) in each.events} == carrying


def test_the_channels_are_every_subject_and_none_besides() -> None:
    drawn = [channel.address for channel in CHANNELS]
    agents = CLUSTER.of(power("n1", 1), agent_name("n1"))
    real = {*SUBJECTS.values(), agents, CLUSTER.heads, CLUSTER.delta, CLUSTER.beat}
    real |= {CLUSTER.caps("n1"), CLUSTER.cuts, CLUSTER.spool("extender-0")}
    fitting = {subject: {line for line in drawn if fits(line, subject)} for subject in real}

    assert [subject for subject, lines in fitting.items() if not lines] == []
    assert set().union(*fitting.values()) == set(drawn)
    assert len(drawn) == len(set(drawn))


def test_what_was_decided_comes_before_what_was_seen() -> None:
    assert MERGE_ORDER == (Stream.PLAN, Stream.CLAIM, Stream.OBS, Stream.TEL)


def test_the_projector_reads_the_facts_and_never_what_it_writes_itself() -> None:
    assert set(MERGE_ORDER) == set(Stream) - {Stream.DEC, Stream.HEADS}
