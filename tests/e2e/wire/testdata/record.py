"""Does with azure-servicebus what the services do themselves over AMQP; clients_test.go records it."""

import os

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

topic, subscription = os.environ["SERVICE_BUS_TOPIC"], os.environ["SERVICE_BUS_SUBSCRIPTION"]
with ServiceBusClient.from_connection_string(os.environ["SERVICE_BUS_CONNECTION_STRING"]) as client:
    with client.get_topic_sender(topic) as sender:
        batch = sender.create_message_batch()
        for n in "123":
            batch.add_message(ServiceBusMessage(
                n.encode(), message_id=n, session_id="theirs", partition_key="theirs", subject=n, content_type="application/json",
                application_properties={"epoch": 1}))
        sender.send_messages(batch)
    with client.get_subscription_receiver(topic, subscription, session_id=NEXT_AVAILABLE_SESSION) as session:
        messages = []
        while len(messages) < 3:
            messages += session.receive_messages(max_message_count=3 - len(messages))
        session.complete_message(messages[0])
        session.dead_letter_message(messages[1], reason="why", error_description="why")
        session.complete_message(messages[2])
        session.session.renew_lock()
    with client.get_subscription_receiver(topic, subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        letters.peek_messages(1)
