"""What the scenarios of Service Bus have in common.

Each has a client and entities that are its alone: s("plain") is a queue, s("sessions") one that requires sessions, s("short")
and s("shortSessions") have locks of five seconds, s("unique") detects duplicates, s("news") is a topic with the subscriptions
all and some.
"""

import base64
import functools
import hashlib
import hmac
import os
import re
import time
import urllib.parse

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

from report import same

TEXT = os.environ["SERVICE_BUS_CONNECTION_STRING"]
DELETING = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
DEAD = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
LONGER = 6.5  # seconds: than the lock of a short queue


def connect(text=TEXT):
    return ServiceBusClient.from_connection_string(text, retry_total=0, retry_backoff_factor=0.1)


def message(name, **properties):
    return ServiceBusMessage(name, message_id=name, **properties)


def ids(messages):
    return [m.message_id for m in messages]


def take(receiver, n):
    """Receives exactly n messages."""
    out = []
    while len(out) < n:
        more = receiver.receive_messages(max_message_count=n - len(out), max_wait_time=9)
        if not more:
            break
        out += more
    same(n, len(out), "messages received")
    return out


def signed(seconds):
    """A connection string with a shared access signature that is good for so many seconds."""
    part = dict(p.split("=", 1) for p in TEXT.split(";") if p)
    resource = urllib.parse.quote_plus(part["Endpoint"])
    expires = int(time.time()) + seconds
    digest = hmac.new(part["SharedAccessKey"].encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote_plus(base64.b64encode(digest))
    token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={part['SharedAccessKeyName']}"
    return f"Endpoint={part['Endpoint']};SharedAccessSignature={token};UseDevelopmentEmulator=true"


def with_key(**changes):
    """The connection string with another SharedAccessKey or SharedAccessKeyName."""
    text = TEXT
    for name, value in changes.items():
        text = re.sub(f"{name}=[^;]*", f"{name}={value}", text)
    return text


class Scene:
    def __init__(self, client, own):
        self.client, self.own = client, own

    def __call__(self, kind):
        return self.own(kind)

    def send(self, queue, *messages):
        with self.client.get_queue_sender(self.own(queue)) as sender:
            sender.send_messages(list(messages))

    def publish(self, *messages):
        with self.client.get_topic_sender(self.own("news")) as sender:
            sender.send_messages(list(messages))

    def sender(self, queue="plain"):
        return self.client.get_queue_sender(self.own(queue))

    def receiver(self, queue="plain", **options):
        return self.client.get_queue_receiver(self.own(queue), **options)

    def subscription(self, name, **options):
        return self.client.get_subscription_receiver(self.own("news"), name, **options)

    def session(self, name=NEXT_AVAILABLE_SESSION, queue="sessions", **options):
        return self.client.get_queue_receiver(self.own(queue), session_id=name, max_wait_time=9, **options)

    def left(self, queue, want, **options):
        """What can be peeked from an entity's beginning."""
        with self.receiver(queue, **options) as r:
            same(want, ids(r.peek_messages(99)), "messages left")


SCENARIOS = []


def scenario(f):
    """A scenario, which is named by its docstring."""
    @functools.wraps(f)
    def run(own):
        with connect() as client:
            f(Scene(client, own))

    SCENARIOS.append(run)
    return f
