import datetime
import threading
import time
import uuid

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from bus import DELETING, connect, ids, message, scenario, signed, take, with_key
from report import fails, same


def later(seconds):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


def carried(s, m):
    """Sends a message and gives it back as it was received."""
    s.send("plain", m)
    with s.receiver(**DELETING) as r:
        return take(r, 1)[0]


@scenario
def send_and_receive(s):
    """send and receive"""
    s.send("plain", ServiceBusMessage(b"body", message_id="1"))
    with s.receiver() as r:
        m, = take(r, 1)
        same(b"body", b"".join(m.body), "body")
        same((0, 1), (m.delivery_count, m.sequence_number), "delivery count and sequence number")
        same(True, abs((m.enqueued_time_utc - later(0)).total_seconds()) < 5 and m.locked_until_utc > later(0), "times")
        r.complete_message(m)
        same([], r.peek_messages(), "messages left")


@scenario
def properties(s):
    """every property of a message"""
    sent = {
        "message_id": "1", "subject": "s", "content_type": "text/plain", "correlation_id": "c", "to": "t", "reply_to": "r",
        "reply_to_session_id": "rs", "session_id": "one", "partition_key": "one", "time_to_live": datetime.timedelta(minutes=5),
    }
    m = carried(s, ServiceBusMessage("", **sent))
    same(sent, {k: getattr(m, k) for k in sent}, "properties")
    same(datetime.timedelta(minutes=5), m.expires_at_utc - m.enqueued_time_utc, "time to live")
    same(0, m.state, "state")


@scenario
def application_properties(s):
    """every type of application property"""
    sent = {
        "text": "ä€𝄞", "empty": "", "yes": True, "no": False, "zero": 0, "small": -1, "int": 2147483647,
        "negative": -2147483648, "double": 0.1, "id": uuid.UUID(int=7), "nothing": None,
    }
    m = carried(s, ServiceBusMessage("", application_properties=dict(sent, at=datetime.datetime.fromtimestamp(1700000000.123, datetime.timezone.utc))))
    got = {k.decode(): v for k, v in m.application_properties.items()}
    same(1700000000123, got.pop("at"), "time")
    same(dict(sent, text="ä€𝄞".encode(), empty=b""), got, "application properties")  # this client leaves text encoded


@scenario
def bodies(s):
    """bodies of data, value and sequence"""
    for kind, sent, want in [
        ("data", [b"x", b"y"], [b"x", b"y"]), ("data", b"", [b""]), ("value", "text", b"text"), ("value", {"a": [1, True]}, {b"a": [1, True]}),
        ("value", 7, 7), ("sequence", [1, True], [[1, True]]), ("sequence", [[1], [2, 3]], [[1], [2, 3]]),
    ]:
        m = carried(s, AmqpAnnotatedMessage(**{kind + "_body": sent}))
        same((kind, want), (m.body_type.value, m.body if kind == "value" else list(m.body)), "body")


@scenario
def annotations(s):
    """annotations of a sender"""
    m = carried(s, AmqpAnnotatedMessage(data_body=b"x", annotations={b"x-mine": b"yes"}, header=AmqpMessageHeader(priority=7, durable=True), footer={b"sum": 1}))
    raw = m.raw_amqp_message
    same((b"yes", 7, {b"sum": 1}), (raw.annotations[b"x-mine"], raw.header.priority, raw.footer), "annotation, priority and footer")


@scenario
def without_id(s):
    """a message without an id"""
    m = carried(s, ServiceBusMessage("x"))
    same(True, bool(m.message_id), "the service made one up")


@scenario
def batch(s):
    """send a batch"""
    with s.sender() as sender:
        b = sender.create_message_batch()
        for name in "123":
            b.add_message(message(name))
        sender.send_messages(b)
    with s.receiver() as r:
        messages = take(r, 3)
        same(["1", "2", "3"], ids(messages), "order")
        for m in messages:
            r.complete_message(m)


@scenario
def full_batch(s):
    """a batch takes messages until it is full"""
    body = bytes(60 << 10)
    with s.sender() as sender:
        b = sender.create_message_batch()
        for name in "0123":
            b.add_message(ServiceBusMessage(body, message_id=name))
        fails(MessageSizeExceededError, lambda: b.add_message(ServiceBusMessage(body)), "a fifth message of 60 KiB in 256 KiB")
        sender.send_messages(b)
        small = sender.create_message_batch(max_size_in_bytes=1000)
        fails(MessageSizeExceededError, lambda: small.add_message(ServiceBusMessage(body)), "add it to a batch of 1,000 bytes")
        fails(ValueError, lambda: sender.create_message_batch(max_size_in_bytes=1 << 20), "make a batch of 1 MiB")
    s.left("plain", ["0", "1", "2", "3"])


@scenario
def batch_of_sessions(s):
    """a batch of several sessions"""
    s.send("sessions", message("1", session_id="a"), message("2", session_id="b"))
    same(["a", "b"], sorted(s.client.list_queue_sessions(s("sessions"))), "sessions")


@scenario
def too_large(s):
    """a message too large"""
    fails(MessageSizeExceededError, lambda: s.send("plain", ServiceBusMessage(bytes(300 << 10))), "send 300 KiB")
    s.send("plain", message("after"))
    s.left("plain", ["after"])


@scenario
def schedule(s):
    """schedule and cancel"""
    with s.sender() as sender:
        soon = later(0.3)
        sender.schedule_messages(message("kept"), soon)
        cancelled = sender.schedule_messages([message("cancelled"), message("too")], later(600))
        same(2, len(cancelled), "numbers")
        sender.cancel_scheduled_messages(cancelled)
        fails(MessageNotFoundError, lambda: sender.cancel_scheduled_messages(cancelled), "cancel them twice")
    with s.receiver() as r:
        m, = take(r, 1)
        same("kept", m.message_id, "message")
        same(True, m.enqueued_time_utc >= soon - datetime.timedelta(milliseconds=5), "enqueued when it was scheduled for")
        r.complete_message(m)
        same([], r.peek_messages(), "messages left")


@scenario
def scheduled_peek(s):
    """a scheduled message is peeked as one"""
    at = later(600)
    with s.sender() as sender, s.receiver() as r:
        number, = sender.schedule_messages(message("1"), at)
        m, = r.peek_messages()
        got = m.scheduled_enqueue_time_utc
        same(("1", 2, number, True), (m.message_id, m.state, m.sequence_number, abs((got - at).total_seconds()) < 0.002), "scheduled")
        same([], r.receive_messages(max_wait_time=0.3), "messages received")


@scenario
def send_later(s):
    """a message sent with a time to appear at"""
    with s.sender() as sender:
        sender.send_messages([message("later", scheduled_enqueue_time_utc=later(2)), message("now")])
    with s.receiver(**DELETING) as r:
        same(["now", "later"], ids(take(r, 2)), "order")


@scenario
def duplicates(s):
    """duplicates are dropped"""
    s.send("unique", message("1"))
    s.send("unique", message("1"), message("2"))
    with s.receiver("unique", **DELETING) as r:
        same(["1", "2"], ids(take(r, 2)), "messages")
    s.send("unique", message("1"))
    s.left("unique", [])


@scenario
def many_senders(s):
    """many senders at once"""
    def send(name):
        with connect() as client, client.get_queue_sender(s("plain")) as sender:
            for i in range(20):
                sender.send_messages(message(f"{name}{i}"))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abc"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with s.receiver(**DELETING) as r:
        got = ids(take(r, 60))
    for name in "abc":
        same([f"{name}{i}" for i in range(20)], [x for x in got if x[0] == name], f"order of {name}")


@scenario
def without_session(s):
    """a message without a session for a queue of sessions"""
    e = fails(ServiceBusError, lambda: s.send("sessions", message("1")), "send")
    same(True, "SessionId" in str(e), str(e))
    same([], list(s.client.list_queue_sessions(s("sessions"))), "sessions")


@scenario
def long_id(s):
    """an id that is too long"""
    fails((ServiceBusError, ValueError), lambda: s.send("plain", ServiceBusMessage("", message_id="x" * 129)), "send")
    s.left("plain", [])


@scenario
def not_there(s):
    """an entity that is not there"""
    def receive():
        with s.client.get_queue_receiver("nowhere") as r:
            r.receive_messages()

    def send():
        with s.client.get_queue_sender("nowhere") as sender:
            sender.send_messages(message("1"))

    for action in [send, receive]:  # what the client makes of it on the service too, since it learns it with its token
        fails(ServiceBusAuthenticationError, action, "use it")


@scenario
def closed(s):
    """a queue that takes nothing"""
    def receive():
        with s.client.get_queue_receiver("shut") as r:
            r.receive_messages()

    def send():
        with s.client.get_queue_sender("closed") as sender:
            sender.send_messages(message("1"))

    for action in [send, receive]:
        fails(MessagingEntityDisabledError, action, "use it")


def refused(s, text, why=ServiceBusAuthenticationError, receives=False):
    with connect(text) as client:
        def send():
            with client.get_queue_sender(s("plain")) as sender:
                sender.send_messages(message("1"))

        def receive():
            with client.get_queue_receiver(s("plain")) as r:
                r.receive_messages()

        fails(why, send, "send")
        if not receives:
            fails(why, receive, "receive")


@scenario
def wrong_key(s):
    """a wrong key"""
    refused(s, with_key(SharedAccessKey="wrong"))
    s.left("plain", [])


@scenario
def listening_key(s):
    """a key that may only listen"""
    s.send("plain", message("1"))
    text = with_key(SharedAccessKeyName="listen")
    with connect(text) as client, client.get_queue_receiver(s("plain")) as r:
        same(["1"], ids(take(r, 1)), "received")
    refused(s, text, ServiceBusAuthorizationError, receives=True)


@scenario
def token_over(s):
    """a token that is over"""
    refused(s, signed(-5))


@scenario
def token_ends(s):
    """a token that runs out"""
    with connect(signed(6)) as client, client.get_queue_sender(s("plain")) as sender:
        sender.send_messages(message("1"))
        time.sleep(7)
        fails(ServiceBusError, lambda: sender.send_messages(message("2")), "send")
    s.left("plain", ["1"])
