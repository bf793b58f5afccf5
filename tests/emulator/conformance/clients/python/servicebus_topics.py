import contextlib
import os

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import CorrelationRuleFilter, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

from bus import DEAD, DELETING, ids, message, scenario, take
from report import fails, same


@contextlib.contextmanager
def rules(s, name="some"):
    """Rules of a subscription, which this client manages through the administration alone."""
    class Rules:
        def create(self, rule, filter, **options):
            admin.create_rule(s("news"), name, rule, filter=filter, **options)

        def delete(self, rule):
            admin.delete_rule(s("news"), name, rule)

        def listed(self):
            return [(r.name, getattr(r.filter, "label", None) or r.filter.sql_expression) for r in admin.list_rules(s("news"), name)]

    admin = ServiceBusAdministrationClient.from_connection_string(
        os.environ["SERVICE_BUS_TLS_CONNECTION_STRING"], connection_verify=os.environ["SERVICE_BUS_CA"], retry_total=0
    )
    with admin:
        yield Rules()


@scenario
def topic(s):
    """a topic and its subscription"""
    s.publish(message("1"))
    with s.subscription("all") as r:
        m, = take(r, 1)
        same("1", m.message_id, "message")
        r.complete_message(m)


@scenario
def copies(s):
    """subscriptions get copies of their own"""
    s.publish(message("1"))
    with s.subscription("all") as r:
        r.complete_message(take(r, 1)[0])
    with s.subscription("some") as r:
        m, = take(r, 1)
        same(("1", 0), (m.message_id, m.delivery_count), "message")
        r.dead_letter_message(m, reason="bad")
    with s.subscription("all", **DEAD) as r:
        same([], r.peek_messages(), "dead letters of the other")
    with s.subscription("some", **DEAD, **DELETING) as r:
        same(["1"], ids(take(r, 1)), "dead letters")


@scenario
def not_received_from(s):
    """a topic cannot be received from"""
    def receive(receiver):
        with receiver as r:
            r.receive_messages(max_wait_time=2)

    fails(ServiceBusError, lambda: receive(s.client.get_queue_receiver(s("news"))), "receive")
    fails(ServiceBusError, lambda: receive(s.subscription("none")), "receive from no subscription")


@scenario
def annotate(s):
    """rules choose and annotate"""
    with rules(s) as r:
        same([("$Default", "1=1")], r.listed(), "rules at first")
        r.create("red", CorrelationRuleFilter(label="red"), action=SqlRuleAction("SET painted = 'yes'"))
        r.create("big", SqlRuleFilter("size > 10"))
        r.delete("$Default")
        same([("red", "red"), ("big", "size > 10")], r.listed(), "rules")
    s.publish(message("1", subject="red"), message("2", subject="blue"), message("3", subject="blue", application_properties={"size": 11}))
    with s.subscription("some", **DELETING) as r:
        messages = take(r, 2)
        same(["1", "3"], ids(messages), "messages")
        same({b"painted": b"yes"}, messages[0].application_properties, "what the action set")
        same([], r.receive_messages(max_wait_time=0.2), "messages left")
    with s.subscription("all", **DELETING) as r:
        same(["1", "2", "3"], ids(take(r, 3)), "the other subscription")


@scenario
def correlation(s):
    """a filter of correlation"""
    properties = {"kind": "a", "n": 3, "yes": True}
    with rules(s) as r:
        r.delete("$Default")
        r.create("both", CorrelationRuleFilter(correlation_id="c", properties=properties))
    sent = {"correlation_id": "c", "application_properties": dict(properties, more=1)}
    s.publish(
        message("match", **sent), message("other id", **dict(sent, correlation_id="d")), message("no id", application_properties=properties),
        message("other text", correlation_id="c", application_properties=dict(properties, kind="b")), message("again", **sent),
    )
    with s.subscription("some", **DELETING) as r:
        same(["match", "again"], ids(take(r, 2)), "messages")


@scenario
def sql(s):
    """filters of SQL"""
    with rules(s) as r:
        r.delete("$Default")
        r.create("sql", SqlRuleFilter("sys.Label LIKE 'or%' AND (n IN (1, 2) OR n IS NULL) AND NOT EXISTS(skip)"))
        r.create("parameter", SqlRuleFilter("color = @c", parameters={"@c": "green"}))
    def m(name, subject, **properties):
        return message(name, subject=subject, application_properties=properties)

    s.publish(m("1", "order", n=1), m("2", "order", n=3), m("3", "order"), m("4", "ordinary", n=2, skip=True), m("5", "x", n=1), m("6", "x", color="green"))
    with s.subscription("some", **DELETING) as r:
        same(["1", "3", "6"], ids(take(r, 3)), "messages")


@scenario
def bad_rules(s):
    """rules that cannot be"""
    with rules(s) as r:
        fails(HttpResponseError, lambda: r.create("bad", SqlRuleFilter("size >")), "create one that is no SQL")
        fails(ResourceExistsError, lambda: r.create("$Default", SqlRuleFilter("1=1")), "create it again")
        fails(ResourceNotFoundError, lambda: r.delete("none"), "delete none")
        same([("$Default", "1=1")], r.listed(), "rules")


@scenario
def unmatched(s):
    """a subscription that nothing matches"""
    with rules(s) as r:
        r.delete("$Default")
    s.publish(message("1"))  # is taken all the same
    with s.subscription("some") as r:
        same([], r.receive_messages(max_wait_time=0.3), "messages")
    with s.subscription("all", **DELETING) as r:
        same(["1"], ids(take(r, 1)), "messages")
