"""Service Bus with azure-servicebus."""

import contextlib
import os
from datetime import datetime, timedelta, timezone

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    SessionCannotBeLockedError,
)

from report import fails, run, same

client = ServiceBusClient.from_connection_string(
    os.environ["SERVICE_BUS_CONNECTION_STRING"], retry_total=0, retry_backoff_factor=0.1
)


senders = {}  # by queue: the client takes half a second to connect


def sender_of(queue):
    if queue not in senders:
        senders[queue] = client.get_queue_sender(queue)
    return senders[queue]


def send(queue, *messages):
    sender_of(queue).send_messages(list(messages))


def message(name, **properties):
    return ServiceBusMessage(name, message_id=name, **properties)


def plain(**options):
    return client.get_queue_receiver("plain", **options)


def session(name):
    return client.get_queue_receiver("sessions", session_id=name, max_wait_time=5)


def take(receiver, n):
    """Receives exactly n messages."""
    out = []
    while len(out) < n:
        more = receiver.receive_messages(max_message_count=n - len(out), max_wait_time=5)
        if not more:
            break
        out += more
    same(n, len(out), "messages received")
    return out


def ids(messages):
    return [m.message_id for m in messages]


def send_and_receive():
    """send and receive"""
    send("plain", ServiceBusMessage(
        b"body", message_id="1", subject="s", content_type="text/plain", correlation_id="c", to="t", reply_to="r",
        time_to_live=timedelta(minutes=5), application_properties={"text": "x", "number": 1, "yes": True},
    ))
    with plain() as r:
        m, = take(r, 1)
        same(b"body", b"".join(m.body), "body")
        same(["1", "s", "text/plain", "c", "t", "r"], [m.message_id, m.subject, m.content_type, m.correlation_id, m.to, m.reply_to], "properties")
        same({b"text": b"x", b"number": 1, b"yes": True}, m.application_properties, "application properties")
        same(timedelta(minutes=5), m.time_to_live, "time to live")
        same(0, m.delivery_count, "delivery count")
        r.complete_message(m)
        same([], r.peek_messages(), "messages left")


def batch():
    """send a batch"""
    b = sender_of("plain").create_message_batch()
    for name in "123":
        b.add_message(message(name))
    sender_of("plain").send_messages(b)
    with plain() as r:
        messages = take(r, 3)
        same(["1", "2", "3"], ids(messages), "order")
        for m in messages:
            r.complete_message(m)


def schedule():
    """schedule and cancel"""
    soon, later = (datetime.now(timezone.utc) + timedelta(seconds=s) for s in (0.3, 600))
    sender = sender_of("plain")
    sender.schedule_messages(message("kept"), soon)
    cancelled = sender.schedule_messages([message("cancelled"), message("too")], later)
    sender.cancel_scheduled_messages(cancelled)
    fails(MessageNotFoundError, lambda: sender.cancel_scheduled_messages(cancelled), "cancel them twice")
    with plain() as r:
        same(["kept"], [m.message_id for m in r.peek_messages(5)], "scheduled")
        m, = take(r, 1)
        same("kept", m.message_id, "message")
        same(True, m.enqueued_time_utc >= soon - timedelta(milliseconds=5), "enqueued when it was scheduled for")
        r.complete_message(m)


def abandon():
    """abandon counts"""
    send("plain", message("1"))
    with plain() as r:
        r.abandon_message(take(r, 1)[0])
        m, = take(r, 1)
        same(1, m.delivery_count, "delivery count")
        r.complete_message(m)


def defer():
    """defer and receive deferred"""
    send("plain", message("1"))
    with plain() as r:
        m, = take(r, 1)
        r.defer_message(m)
        deferred, = r.receive_deferred_messages(m.sequence_number)
        same("1", deferred.message_id, "message")
        r.complete_message(deferred)
        fails(MessageNotFoundError, lambda: r.receive_deferred_messages(m.sequence_number), "receive it again")


def dead_letter():
    """dead-letter and read it"""
    send("plain", message("1"))
    with plain() as r:
        r.dead_letter_message(take(r, 1)[0], reason="bad", error_description="very")
    with plain(sub_queue=ServiceBusSubQueue.DEAD_LETTER) as r:
        m, = take(r, 1)
        same(["1", "bad", "very"], [m.message_id, m.dead_letter_reason, m.dead_letter_error_description], "dead letter")
        r.complete_message(m)


def renew():
    """renew a message's lock"""
    send("plain", message("1"))
    with plain() as r:
        m, = take(r, 1)
        before = m.locked_until_utc
        same(True, r.renew_message_lock(m) >= before, "locked for longer")
        r.complete_message(m)


def receive_and_delete():
    """receive and delete"""
    send("plain", message("1"), message("2"))
    with plain(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as r:
        same(["1", "2"], ids(take(r, 2)), "messages")
        same([], r.peek_messages(), "messages left")


def peek():
    """peek takes nothing"""
    send("plain", message("1"), message("2"))
    with plain() as r:
        same(["1", "2"], ids(r.peek_messages(5)), "peeked")
        messages = take(r, 2)
        same(["1", "2"], ids(messages), "received")
        for m in messages:
            r.complete_message(m)


def iterate():
    """iterate over a receiver"""
    send("plain", message("1"), message("2"))
    with plain(max_wait_time=1) as r:
        seen = []
        for m in r:
            seen.append(m.message_id)
            r.complete_message(m)
            if len(seen) == 2:
                break
        same(["1", "2"], seen, "messages")


def named_session():
    """accept a named session"""
    send("sessions", message("1", session_id="a"), message("2", session_id="b"), message("3", session_id="a"))
    for name, want in [("a", ["1", "3"]), ("b", ["2"])]:
        with session(name) as r:
            same(name, r.session.session_id, "session")
            messages = take(r, len(want))
            same(want, ids(messages), "messages")
            for m in messages:
                r.complete_message(m)


def next_session():
    """accept the next session"""
    send("sessions", message("1", session_id="next"))
    with session(NEXT_AVAILABLE_SESSION) as r:
        same("next", r.session.session_id, "session")
        r.complete_message(take(r, 1)[0])


def one_holder():
    """a session has one holder"""
    def again():
        with session("held"):
            pass

    with session("held"):
        fails(SessionCannotBeLockedError, again, "accept it twice")


def session_state():
    """session state and lock"""
    with session("state") as r:
        same(None, r.session.get_state(), "state at first")
        r.session.set_state(b"step 2")
        same(b"step 2", r.session.get_state(), "state")
        before = r.session.locked_until_utc
        same(True, r.session.renew_lock() >= before, "locked for longer")
        r.session.set_state(None)
        same(None, r.session.get_state(), "state in the end")


def session_defer():
    """deferred and peeked in a session"""
    send("sessions", message("1", session_id="deferred"))
    with session("deferred") as r:
        m, = take(r, 1)
        r.defer_message(m)
        same(["1"], ids(r.peek_messages(5, sequence_number=1)), "peeked")
        again, = r.receive_deferred_messages(m.sequence_number)
        r.complete_message(again)
        same([], ids(r.peek_messages(5, sequence_number=m.sequence_number)), "left")


def duplicates():
    """duplicates are dropped"""
    send("unique", message("1"))
    send("unique", message("1"), message("2"))
    with client.get_queue_receiver("unique", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as r:
        same(["1", "2"], ids(take(r, 2)), "messages")
        same([], r.peek_messages(), "messages left")


def topic():
    """a topic and its subscription"""
    with client.get_topic_sender("news") as sender:
        sender.send_messages(message("1"))
    with client.get_subscription_receiver("news", "all") as r:
        m, = take(r, 1)
        same("1", m.message_id, "message")
        r.complete_message(m)


def too_large():
    """a message too large"""
    fails(MessageSizeExceededError, lambda: send("plain", ServiceBusMessage(b"x" * (300 << 10))), "send 300 KiB")
    send("plain", message("after"))
    with plain(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as r:
        same(["after"], ids(take(r, 1)), "messages")


def not_there():
    """an entity that is not there"""
    # What the client makes of it on the service too, since it learns it with its token.
    fails(ServiceBusAuthenticationError, lambda: send("nowhere", message("1")), "send")


def no_session():
    """a queue without sessions cannot be accepted"""
    def accept():
        with client.get_queue_receiver("plain", session_id="x"):
            pass

    fails(ServiceBusError, accept, "accept")


with contextlib.closing(client):
    run("servicebus", [
        send_and_receive, batch, schedule, abandon, defer, dead_letter, renew, receive_and_delete, peek, iterate, named_session,
        next_session, one_holder, session_state, session_defer, duplicates, topic, too_large, not_there, no_session,
    ])
