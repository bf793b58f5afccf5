"""What a team would write by hand: a thread reads a change stream, and the main thread sends all that has arrived.

The resume token is in a file, which is written after each acknowledged batch, so that a restart continues behind it.
"""

import json
import os
import queue
import threading

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from bson import json_util
from pymongo import MongoClient

TOKEN_FILE = os.environ["TOKEN_FILE"]
# A batch that the client fills completely is 15 bytes larger than the limit of 256 KiB, and the embedded server refuses it.
LIMIT = 250_000

events = queue.Queue(maxsize=5000)


def resume_token():
    try:
        with open(TOKEN_FILE, encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def save(token):
    with open(TOKEN_FILE + ".new", "w", encoding="utf-8") as f:
        json.dump(token, f)
    os.replace(TOKEN_FILE + ".new", TOKEN_FILE)


def read():
    try:
        collection = MongoClient(os.environ["MONGODB_URI"])[os.environ["MONGODB_DATABASE"]][os.environ["MONGODB_COLLECTION"]]
        with collection.watch([{"$match": {"operationType": "insert"}}], resume_after=resume_token(), batch_size=1000) as stream:
            for event in stream:
                events.put(event)
    except Exception as e:  # the main thread raises it
        events.put(e)


def message(document):
    return ServiceBusMessage(
        json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS),
        content_type="application/json",
        message_id=str(document["_id"]),
        session_id=document["aggregateId"],
        application_properties={"version": document["version"]},
    )


def arrived():
    """Waits for an event, and returns it with all others that are there."""
    batch = [events.get()]
    try:
        while True:
            batch.append(events.get_nowait())
    except queue.Empty:
        return batch


def main():
    threading.Thread(target=read, daemon=True).start()
    with ServiceBusClient.from_connection_string(os.environ["SERVICE_BUS_CONNECTION_STRING"]) as client:
        with client.get_topic_sender(os.environ["SERVICE_BUS_TOPIC"]) as sender:
            while True:
                batch, token = sender.create_message_batch(max_size_in_bytes=LIMIT), None
                for event in arrived():
                    if isinstance(event, Exception):
                        raise event
                    m = message(event["fullDocument"])
                    try:
                        batch.add_message(m)
                    except ValueError:  # it is full
                        sender.send_messages(batch)
                        save(token)
                        batch = sender.create_message_batch(max_size_in_bytes=LIMIT)
                        batch.add_message(m)
                    token = event["_id"]
                sender.send_messages(batch)
                save(token)


main()
