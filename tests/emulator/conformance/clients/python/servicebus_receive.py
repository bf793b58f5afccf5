import datetime
import threading
import time

from azure.servicebus.exceptions import MessageAlreadySettled, MessageNotFoundError

from bus import DEAD, DELETING, connect, ids, message, scenario, take
from report import fails, same


@scenario
def receive_and_delete(s):
    """receive and delete"""
    s.send("plain", message("1"), message("2"))
    with s.receiver(**DELETING) as r:
        messages = take(r, 2)
        same(["1", "2"], ids(messages), "messages")
        fails(ValueError, lambda: r.complete_message(messages[0]), "complete one")
    s.left("plain", [])


@scenario
def peek(s):
    """peek takes nothing"""
    s.send("plain", message("1"), message("2"))
    with s.receiver() as r:
        same(["1", "2"], ids(r.peek_messages(5)), "peeked")
        messages = take(r, 2)
        same(["1", "2"], ids(messages), "received")
        same([0, 0], [m.delivery_count for m in messages], "delivery counts")
    s.left("plain", ["1", "2"])  # what is locked is peeked too


@scenario
def peek_from(s):
    """peek from a sequence number"""
    s.send("plain", *[message(name) for name in "1234"])
    with s.receiver() as r:
        first = r.peek_messages(2)
        same(["1", "2"], ids(first), "the first two")
        same(["3", "4"], ids(r.peek_messages(5, sequence_number=first[1].sequence_number + 1)), "behind them")
        same(["2", "3"], ids(r.peek_messages(2, sequence_number=first[1].sequence_number)), "from the second")
        same([], r.peek_messages(5, sequence_number=first[1].sequence_number + 100), "behind the last")


@scenario
def nothing(s):
    """nothing to receive"""
    with s.receiver() as r:
        start = time.monotonic()
        same([], r.receive_messages(max_wait_time=0.5), "messages")
        same(True, time.monotonic() - start < 3, "it came back in time")
        s.send("plain", message("1"))
        same(["1"], ids(take(r, 1)), "the receiver goes on")


@scenario
def hundreds(s):
    """hundreds of messages in order"""
    names = [str(i) for i in range(300)]
    s.send("plain", *[message(name) for name in names])
    got = []
    with s.receiver(prefetch_count=50) as r:
        while len(got) < len(names):
            messages = r.receive_messages(max_message_count=70, max_wait_time=5)
            if not messages:
                break
            got += ids(messages)
            for m in messages:
                r.complete_message(m)
    same(names, got, "order")
    s.left("plain", [])


@scenario
def abandon(s):
    """abandon counts"""
    s.send("plain", message("1", application_properties={"kept": 1}))
    with s.receiver() as r:
        r.abandon_message(take(r, 1)[0])
        m, = take(r, 1)
        same((1, {b"kept": 1}), (m.delivery_count, m.application_properties), "delivery count and property")
        r.complete_message(m)


@scenario
def too_often(s):
    """abandoned too often"""
    s.send("short", message("1"))
    with s.receiver("short") as r:
        for n in range(3):
            m, = take(r, 1)
            same(n, m.delivery_count, "delivery count")
            r.abandon_message(m)
        same([], r.receive_messages(max_wait_time=0.3), "messages left")
    with s.receiver("short", **DEAD) as r:
        m, = take(r, 1)
        same("MaxDeliveryCountExceeded", m.dead_letter_reason, "reason")
        same(True, "3 delivery attempts" in m.dead_letter_error_description, m.dead_letter_error_description)


@scenario
def defer(s):
    """defer and receive deferred"""
    s.send("plain", message("1"), message("2"))
    with s.receiver() as r:
        m, = take(r, 1)
        r.defer_message(m)
        same(["2"], ids(take(r, 1)), "the next one")
        deferred, = r.receive_deferred_messages(m.sequence_number)
        same(("1", 1, 0), (deferred.message_id, deferred.state, deferred.delivery_count), "message")
        r.complete_message(deferred)


@scenario
def settle_deferred(s):
    """a deferred message is settled every way"""
    s.send("plain", *[message(name) for name in "1234"])
    with s.receiver() as r:
        messages = take(r, 4)
        for m in messages:
            r.defer_message(m)
        numbers = [m.sequence_number for m in messages]
        deferred = r.receive_deferred_messages(numbers)
        same(["1", "2", "3", "4"], ids(deferred), "deferred")
        r.complete_message(deferred[0])
        r.abandon_message(deferred[1])
        r.defer_message(deferred[2])
        r.dead_letter_message(deferred[3], reason="bad", error_description="very")
        second, third = r.receive_deferred_messages(numbers[1:3])
        same(("2", 1, "3", 0), (second.message_id, second.delivery_count, third.message_id, third.delivery_count), "what is deferred again")
    with s.receiver(**DEAD) as r:
        m, = take(r, 1)
        same(("4", "bad", "very"), (m.message_id, m.dead_letter_reason, m.dead_letter_error_description), "dead letter")


@scenario
def no_deferred(s):
    """a deferred message that is not there"""
    s.send("plain", message("1"))
    with s.receiver() as r:
        m, = take(r, 1)
        fails(MessageNotFoundError, lambda: r.receive_deferred_messages(m.sequence_number), "receive one that is not deferred")
        r.defer_message(m)
        fails(MessageNotFoundError, lambda: r.receive_deferred_messages([m.sequence_number, m.sequence_number + 7]), "receive one too many")
        deferred, = r.receive_deferred_messages(m.sequence_number)
        r.complete_message(deferred)
        fails(MessageNotFoundError, lambda: r.receive_deferred_messages(m.sequence_number), "receive it again")


@scenario
def delete_deferred(s):
    """deferred, received and deleted"""
    s.send("plain", message("1"))
    with s.receiver() as r:
        m, = take(r, 1)
        r.defer_message(m)
        peeked, = r.peek_messages(sequence_number=1)
        same(1, peeked.state, "state")
    with s.receiver(**DELETING) as r:
        same(["1"], ids(r.receive_deferred_messages(m.sequence_number)), "message")
    s.left("plain", [])


@scenario
def dead_letter(s):
    """dead-letter and read it"""
    s.send("plain", message("1", application_properties={"kept": 1}))
    with s.receiver() as r:
        r.dead_letter_message(take(r, 1)[0], reason="bad", error_description="very")
    s.left("plain", [])
    s.left("plain", ["1"], **DEAD)
    with s.receiver(**DEAD) as r:
        m, = take(r, 1)
        same(("1", "bad", "very", 1), (m.message_id, m.dead_letter_reason, m.dead_letter_error_description, m.application_properties[b"kept"]), "dead letter")
        r.complete_message(m)
    s.left("plain", [], **DEAD)


@scenario
def abandon_dead(s):
    """a dead letter is abandoned"""
    s.send("short", message("1"))
    with s.receiver("short") as r:
        r.dead_letter_message(take(r, 1)[0])
    with s.receiver("short", **DEAD) as r:
        for _ in range(5):  # more often than a queue lets it
            r.abandon_message(take(r, 1)[0])
        r.complete_message(take(r, 1)[0])


@scenario
def expires(s):
    """a message expires"""
    s.send("plain", message("1", time_to_live=datetime.timedelta(seconds=1)), message("2"))  # this client knows whole seconds
    time.sleep(1.2)
    with s.receiver(**DELETING) as r:
        same(["2"], ids(take(r, 1)), "messages")
    s.left("plain", [], **DEAD)


@scenario
def expires_dead(s):
    """an expired message is dead-lettered"""
    s.send("short", message("1", time_to_live=datetime.timedelta(seconds=1)))
    with s.receiver("short", **DEAD) as r:
        m, = take(r, 1)
        same(("1", "TTLExpiredException"), (m.message_id, m.dead_letter_reason), "dead letter")


@scenario
def once(s):
    """a message is settled once"""
    s.send("plain", message("1"))
    with s.receiver() as r:
        m, = take(r, 1)
        r.complete_message(m)
        fails(MessageAlreadySettled, lambda: r.complete_message(m), "complete it again")


@scenario
def two_receivers(s):
    """two receivers share a queue"""
    names = [str(i) for i in range(40)]
    s.send("plain", *[message(name) for name in names])
    got = [[], []]

    def receive(mine):
        with connect() as client, client.get_queue_receiver(s("plain")) as r:
            for m in take(r, 20):
                mine.append((m.sequence_number, m.message_id))
                r.complete_message(m)

    threads = [threading.Thread(target=receive, args=(mine,)) for mine in got]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for mine in got:
        same(sorted(mine), mine, "order")
    same(sorted(names), sorted(name for mine in got for _, name in mine), "each message went to one of them")
    s.left("plain", [])


@scenario
def iterate(s):
    """iterate over a receiver"""
    s.send("plain", message("1"), message("2"))
    with s.receiver(max_wait_time=5) as r:
        seen = []
        for m in r:
            seen.append(m.message_id)
            r.complete_message(m)
            if len(seen) == 2:
                break
        same(["1", "2"], seen, "messages")
    s.left("plain", [])


@scenario
def close_receiver(s):
    """close while receiving"""
    with connect() as client:
        r = client.get_queue_receiver(s("plain"))
        waits = threading.Thread(target=swallow, args=(lambda: r.receive_messages(max_wait_time=2),))
        waits.start()
        time.sleep(0.7)
        r.close()
        waits.join()
    s.send("plain", message("1"))
    with s.receiver() as again:
        m, = take(again, 1)
        same(("1", 0), (m.message_id, m.delivery_count), "nobody else got it")


@scenario
def close_client(s):
    """close the client while receiving"""
    client = connect()
    r = client.get_queue_receiver(s("plain"))
    waits = threading.Thread(target=swallow, args=(lambda: r.receive_messages(max_wait_time=2),))
    waits.start()
    time.sleep(0.7)
    client.close()
    waits.join()
    s.send("plain", message("1"))
    with s.receiver() as again:
        same(["1"], ids(take(again, 1)), "messages")


def swallow(action):
    """What a client that is closed under it makes of a call is its own affair."""
    try:
        action()
    except Exception:
        pass
