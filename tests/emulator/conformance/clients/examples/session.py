import os
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage

topic, subscription = os.environ["SERVICE_BUS_TOPIC"], os.environ["SERVICE_BUS_SUBSCRIPTION"]
with ServiceBusClient.from_connection_string(os.environ["SERVICE_BUS_CONNECTION_STRING"]) as client:
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("paid", session_id="order-1"))
    with client.get_subscription_receiver(topic, subscription, session_id=NEXT_AVAILABLE_SESSION) as session:
        for message in session.receive_messages():
            print(f"{session.session.session_id}: {message}")
            session.complete_message(message)
