import datetime
import time

from azure.servicebus import AutoLockRenewer
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError, SessionLockLostError

from bus import LONGER, connect, ids, message, scenario, take
from report import fails, same


@scenario
def renew(s):
    """renew a message's lock"""
    s.send("plain", message("1"))
    with s.receiver() as r:
        m, = take(r, 1)
        before = m.locked_until_utc
        time.sleep(0.02)
        same(True, r.renew_message_lock(m) > before, "locked for longer")
        r.complete_message(m)


@scenario
def lock_runs_out(s):
    """a message's lock runs out"""
    s.send("short", message("1"))
    with s.receiver("short") as r:
        m, = take(r, 1)
        time.sleep(LONGER)
        fails(MessageLockLostError, lambda: r.renew_message_lock(m), "renew")
        fails(MessageLockLostError, lambda: r.complete_message(m), "complete")
        again, = take(r, 1)
        same(("1", 1), (again.message_id, again.delivery_count), "delivered again")
        r.complete_message(again)
    s.left("short", [])


@scenario
def lock_outlives(s):
    """a lock outlives its receiver"""
    s.send("short", message("1"))
    with connect() as client, client.get_queue_receiver(s("short")) as r:
        take(r, 1)
    with s.receiver("short") as r:
        same([], r.receive_messages(max_wait_time=1), "messages while it is locked")
        m, = take(r, 1)
        same(1, m.delivery_count, "delivery count")


@scenario
def renewed(s):
    """a message's lock is renewed by itself"""
    s.send("short", message("1"))
    with AutoLockRenewer() as renewer, s.receiver("short", auto_lock_renewer=renewer) as r:
        m, = take(r, 1)
        time.sleep(LONGER)
        r.complete_message(m)
    s.left("short", [])


@scenario
def session_runs_out(s):
    """a session's lock runs out"""
    s.send("shortSessions", message("1", session_id="a"))
    with s.session("a", "shortSessions") as r:
        m, = take(r, 1)
        time.sleep(LONGER)
        fails(SessionLockLostError, lambda: r.complete_message(m), "complete")
        fails(SessionLockLostError, r.session.renew_lock, "renew")
        fails(SessionLockLostError, lambda: r.session.set_state(b"x"), "set the state")
    with s.session("a", "shortSessions") as r:
        m, = take(r, 1)
        same(("1", 1), (m.message_id, m.delivery_count), "delivered again")
        r.complete_message(m)


@scenario
def session_renew(s):
    """a session's lock is renewed"""
    s.send("shortSessions", message("1", session_id="a"))
    with s.session("a", "shortSessions") as r:
        m, = take(r, 1)
        for _ in range(3):
            time.sleep(LONGER / 3)
            until = r.session.renew_lock()
            same(True, until > datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3), "locked")
        r.complete_message(m)


@scenario
def session_renewed(s):
    """a session's lock is renewed by itself"""
    s.send("shortSessions", message("1", session_id="a"))
    with AutoLockRenewer() as renewer, s.session("a", "shortSessions", auto_lock_renewer=renewer) as r:
        m, = take(r, 1)
        time.sleep(LONGER)
        r.complete_message(m)


@scenario
def holder_gone(s):
    """a session whose holder is gone"""
    s.send("shortSessions", message("1", session_id="a"))
    with s.session("a", "shortSessions") as r:
        take(r, 1)
    with s.session("a", "shortSessions") as r:  # at once: closing gives the session back
        m, = take(r, 1)
        same(("1", 0), (m.message_id, m.delivery_count), "no failed delivery")
        r.complete_message(m)
