"""Service Bus with azure-servicebus. ../servicebus.json lists the scenarios of all languages."""

import bus
import servicebus_locks
import servicebus_receive
import servicebus_send
import servicebus_sessions
import servicebus_topics
from report import run

assert servicebus_send and servicebus_receive and servicebus_locks and servicebus_sessions and servicebus_topics  # they add theirs
run("servicebus", bus.SCENARIOS, at_once=16)
