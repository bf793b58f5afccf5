"""Service Bus's administration with azure-servicebus."""

import os

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import CorrelationRuleFilter, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

from report import fails, run, same

connection, ca = os.environ["SERVICE_BUS_TLS_CONNECTION_STRING"], os.environ["SERVICE_BUS_CA"]
admin = ServiceBusAdministrationClient.from_connection_string(connection, connection_verify=ca, retry_total=0)


def a_queue():
    """a queue"""
    made = admin.create_queue("made", requires_session=True, lock_duration="PT30S", max_delivery_count=3, user_metadata="mine")
    same(("made", True, 3, "Active", "Available", False), (made.name, made.requires_session, made.max_delivery_count, made.status, made.availability_status, made.enable_express), "made")
    fails(ResourceExistsError, lambda: admin.create_queue("made"), "create it again")
    q = admin.get_queue("made")
    q.max_delivery_count = 5
    admin.update_queue(q)
    same(5, admin.get_queue("made").max_delivery_count, "updated")
    admin.delete_queue("made")
    fails(ResourceNotFoundError, lambda: admin.get_queue("made"), "get it")


def queues():
    """queues"""
    same(["plain", "sessions", "unique"], [q.name for q in admin.list_queues()], "names")


def counts():
    """messages of a queue are counted"""
    # Behind TLS this client's messages go to port 5671 whatever it is told.
    plain = os.environ["SERVICE_BUS_CONNECTION_STRING"]
    with ServiceBusClient.from_connection_string(plain) as client, client.get_queue_sender("plain") as sender:
        sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    p = admin.get_queue_runtime_properties("plain")
    same((2, 0, 2), (p.active_message_count, p.dead_letter_message_count, p.total_message_count), "counts")


def a_topic():
    """a topic, a subscription and its rules"""
    admin.create_topic("t", requires_duplicate_detection=True)
    admin.create_subscription("t", "s", lock_duration="PT30S")
    admin.create_rule("t", "s", "red", filter=CorrelationRuleFilter(label="red", properties={"size": 3}))
    admin.create_rule("t", "s", "big", filter=SqlRuleFilter("size > 10"), action=SqlRuleAction("SET big = 'yes'"))
    same(["$Default", "red", "big"], [r.name for r in admin.list_rules("t", "s")], "rules")
    rule = admin.get_rule("t", "s", "red")
    same(("red", {"size": 3}), (rule.filter.label, rule.filter.properties), "filter")
    same("SET big = 'yes'", admin.get_rule("t", "s", "big").action.sql_expression, "action")
    admin.delete_rule("t", "s", "$Default")
    same(["s"], [s.name for s in admin.list_subscriptions("t")], "subscriptions")
    same(0, admin.get_subscription_runtime_properties("t", "s").active_message_count, "messages")
    same(1, admin.get_topic_runtime_properties("t").subscription_count, "count")
    admin.delete_topic("t")
    same(["news"], [t.name for t in admin.list_topics()], "topics")


def namespace():
    """the namespace"""
    same("Standard", admin.get_namespace_properties().messaging_sku, "tier")


with admin:
    run("administration", [a_queue, queues, counts, a_topic, namespace])
