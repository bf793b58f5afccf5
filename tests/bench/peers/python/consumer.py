"""What a team would write by hand: threads, each of which accepts the next session and writes its messages to the read model.

The guard in the update's filter skips an event that has been applied before.
"""

import os
import sys
import threading

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError
from bson import json_util
from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError

SESSIONS = 16  # threads; more of them only wait for the interpreter
IDLE = 0.05  # seconds until a session without messages is released

model = MongoClient(os.environ["MONGODB_URI"])[os.environ["READ_MODEL_DATABASE"]]["timeline"]


def apply(message):
    event = json_util.loads(str(message))["fullDocument"]  # a long is an object in the message
    try:
        model.update_one(
            {"_id": event["aggregateId"], "version": {"$lt": event["version"]}},
            {
                "$set": {"version": event["version"], "last": {"type": event["type"], "occurredAt": event["occurredAt"]}},
                "$inc": {"events": 1},
            },
            upsert=True,
        )
    except DuplicateKeyError:
        pass  # the document exists, so its version is not lower


def work():
    # A client for each thread: the connection of one is not safe for several.
    with ServiceBusClient.from_connection_string(os.environ["SERVICE_BUS_CONNECTION_STRING"]) as client:
        while True:
            try:
                with client.get_subscription_receiver(
                    os.environ["SERVICE_BUS_TOPIC"], os.environ["SERVICE_BUS_SUBSCRIPTION"], session_id=NEXT_AVAILABLE_SESSION
                ) as receiver:
                    while messages := receiver.receive_messages(max_message_count=100, max_wait_time=IDLE):
                        for m in messages:
                            apply(m)
                            receiver.complete_message(m)
            except OperationTimeoutError:
                pass  # no session has messages
            except Exception as e:  # the messages come again, in order, after the session has been released
                print(e, file=sys.stderr)


for _ in range(SESSIONS):
    threading.Thread(target=work).start()
