import datetime
import time

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError, SessionCannotBeLockedError

from bus import DEAD, ids, message, scenario, take
from report import fails, same


def of(session, *names):
    return [message(name, session_id=session) for name in names]


def opened(receiver):
    with receiver:
        pass


@scenario
def named(s):
    """accept a named session"""
    s.send("sessions", *of("a", "1"), *of("b", "2"), *of("a", "3"))
    for name, want in [("a", ["1", "3"]), ("b", ["2"])]:
        with s.session(name) as r:
            same(name, r.session.session_id, "session")
            messages = take(r, len(want))
            same((want, {name}), (ids(messages), {m.session_id for m in messages}), "messages")
            for m in messages:
                r.complete_message(m)


@scenario
def next_session(s):
    """accept the next session"""
    s.send("sessions", *of("next", "1"))
    with s.session() as r:
        same("next", r.session.session_id, "session")
        r.complete_message(take(r, 1)[0])


@scenario
def no_session(s):
    """no session to accept"""
    start = time.monotonic()
    fails(OperationTimeoutError, lambda: opened(s.client.get_queue_receiver(s("sessions"), session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)), "accept")
    same(True, time.monotonic() - start < 15, "it came back in time")


@scenario
def two(s):
    """two receivers accept different sessions"""
    s.send("sessions", *of("a", "1"), *of("b", "2"))
    with s.session() as first, s.session() as second:
        same({"a", "b"}, {first.session.session_id, second.session.session_id}, "sessions")
        for r in [first, second]:
            same([r.session.session_id], [m.session_id for m in take(r, 1)], "messages")


@scenario
def empty(s):
    """a session without messages"""
    with s.session("empty") as r:
        same([], r.receive_messages(max_wait_time=0.3), "messages")
        s.send("sessions", *of("empty", "1"))
        same(["1"], ids(take(r, 1)), "what came later")


@scenario
def one_holder(s):
    """a session has one holder"""
    with s.session("held"):
        fails(SessionCannotBeLockedError, lambda: opened(s.session("held")), "accept it twice")
    opened(s.session("held"))  # free again


@scenario
def state(s):
    """session state and lock"""
    with s.session("state") as r:
        same(None, r.session.get_state(), "state at first")
        r.session.set_state(b"step 2")
        same(b"step 2", r.session.get_state(), "state")
        same(True, r.session.renew_lock() > datetime.datetime.now(datetime.timezone.utc), "locked")
    with s.session("other") as r:
        same(None, r.session.get_state(), "state of another session")
    with s.session("state") as r:
        same(b"step 2", r.session.get_state(), "state outlives its holder")
        r.session.set_state(None)
        same(None, r.session.get_state(), "state in the end")


@scenario
def large_state(s):
    """a session's state is too large"""
    with s.session("large") as r:
        fails(ServiceBusError, lambda: r.session.set_state(bytes(300 << 10)), "set 300 KiB")
        same(None, r.session.get_state(), "state")


@scenario
def deferred(s):
    """deferred and peeked in a session"""
    s.send("sessions", *of("deferred", "1"), *of("another", "2"))
    with s.session("deferred") as r:
        m, = take(r, 1)
        r.defer_message(m)
        same(["1"], ids(r.peek_messages(5, sequence_number=1)), "peeked")
        again, = r.receive_deferred_messages(m.sequence_number)
        r.complete_message(again)
        same([], r.peek_messages(5, sequence_number=m.sequence_number), "left")


@scenario
def deferred_elsewhere(s):
    """a deferred message of another session"""
    s.send("sessions", *of("a", "1"), *of("b", "2"))
    with s.session("a") as r:
        m, = take(r, 1)
        r.defer_message(m)
    with s.session("b") as r:
        fails(ServiceBusError, lambda: r.receive_deferred_messages(m.sequence_number), "receive it")


@scenario
def keeps_place(s):
    """an abandoned message keeps its place"""
    s.send("sessions", *of("a", "1", "2", "3"))
    with s.session("a") as r:
        r.abandon_message(take(r, 1)[0])
        messages = take(r, 3)
        same((["1", "2", "3"], [1, 0, 0]), (ids(messages), [m.delivery_count for m in messages]), "order and counts")
        for m in messages:
            r.complete_message(m)


@scenario
def dead_letter(s):
    """a dead letter of a session"""
    s.send("sessions", *of("a", "1"))
    with s.session("a") as r:
        r.dead_letter_message(take(r, 1)[0])
    with s.receiver("sessions", **DEAD) as r:
        m, = take(r, 1)
        same(("1", "a"), (m.message_id, m.session_id), "dead letter")
        r.complete_message(m)


@scenario
def listed(s):
    """sessions are listed"""
    start = datetime.datetime.now(datetime.timezone.utc)
    s.send("sessions", *of("b", "1"), *of("a", "2"))
    with s.session("c") as r:
        same(["a", "b"], sorted(s.client.list_queue_sessions(s("sessions"))), "sessions with messages")
        r.session.set_state(b"x")
    same(["a", "b", "c"], sorted(s.client.list_queue_sessions(s("sessions"))), "and with state")
    same(["c"], list(s.client.list_queue_sessions(s("sessions"), state_updated_after=start)), "whose state was changed")


@scenario
def no_sessions(s):
    """a queue without sessions cannot be accepted"""
    fails(ServiceBusError, lambda: opened(s.client.get_queue_receiver(s("plain"), session_id="x")), "accept")


@scenario
def only_sessions(s):
    """a queue of sessions cannot be received from without"""
    def receive():
        with s.receiver("sessions") as r:
            r.receive_messages(max_wait_time=2)

    fails(ServiceBusError, receive, "receive")
