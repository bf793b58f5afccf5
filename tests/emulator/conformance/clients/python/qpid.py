"""Service Bus with Qpid Proton, a client of AMQP 1.0 that knows nothing of Service Bus: its annotations, filters and requests are
made by hand, as the service's guide to its protocol describes them.
"""

import contextlib
import os
import time
import uuid

import proton
from proton import Array, ConnectionException, Described, Disposition, LinkException, Message, byte, char, decimal32, decimal64, decimal128, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort
from proton.reactor import AtMostOnce, LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException

from report import fails, run, same

PART = dict(p.split("=", 1) for p in os.environ["SERVICE_BUS_CONNECTION_STRING"].split(";") if p)
HOST = PART["Endpoint"].replace("sb://", "")
SCENARIOS = []


def connect(user=PART["SharedAccessKeyName"], password=PART["SharedAccessKey"], mechanisms="PLAIN", **options):
    return BlockingConnection(f"amqp://{HOST}", timeout=10, user=user, password=password, allowed_mechs=mechanisms, allow_insecure_mechs=True, **options)


class Scene:
    def __init__(self, connection, own):
        self.connection, self.own = connection, own

    def __call__(self, kind):
        return self.own(kind)

    def send(self, queue, *messages):
        sender = self.connection.create_sender(self.own(queue))
        for m in messages:
            sender.send(m)
        sender.close()

    @contextlib.contextmanager
    def receiver(self, queue="plain", credit=10, suffix="", options=None):
        r = self.connection.create_receiver(self.own(queue) + suffix, credit=credit, options=options)
        try:
            yield r
        finally:
            r.close()

    def carried(self, m):
        """Sends a message and gives it back as it was received."""
        self.send("plain", m)
        with self.receiver() as r:
            got = r.receive(timeout=5)
            r.accept()
            return got

    def manage(self, queue, operation, body):
        """What a request to an entity's $management is answered with: a status and a body."""
        with node(self.connection, f"{self.own(queue)}/$management") as ask:
            answer = ask(body, operation="com.microsoft:" + operation)
        return answer.properties["statusCode"], plain(answer.body)

    def left(self, queue):
        status, body = self.manage(queue, "peek-message", {"from-sequence-number": 1, "message-count": int32(99)})
        return [] if status == 204 else [decoded(m["message"]).id for m in body["messages"]]


class ReplyTo(LinkOption):
    def apply(self, link):
        link.target.address = "mine"


@contextlib.contextmanager
def node(connection, address):
    """A function that asks a node with two links, which know each other by the name that answers go to."""
    replies = connection.create_receiver(address, credit=1, options=ReplyTo(), name=str(uuid.uuid4()))
    requests = connection.create_sender(address, name=str(uuid.uuid4()))

    def ask(body, **properties):
        requests.send(Message(id="1", reply_to="mine", body=body, properties=properties))
        answer = replies.receive(timeout=5)  # which is settled
        same("1", answer.correlation_id, "correlation id")
        return answer

    yield ask
    requests.close()
    replies.close()


def plain(v):
    """What was received, with bytes where this client has a view of the message's memory, which ends with the message."""
    match v:
        case memoryview():
            return bytes(v)
        case dict():
            return {k: plain(of) for k, of in v.items()}
        case list():
            return [plain(of) for of in v]
    return v


def decoded(data):
    m = Message()
    m.decode(data)
    return m


def scenario(f):
    def one(own):
        with contextlib.closing(connect()) as c:
            f(Scene(c, own))

    one.__doc__ = f.__doc__
    SCENARIOS.append(one)
    return f


def nothing(r, seconds=0.5):
    fails(proton.Timeout, lambda: r.receive(timeout=seconds), "receive")


class Session(LinkOption):
    """A filter that asks for a session, the next one without a name."""

    KEY, TYPE = symbol("com.microsoft:session-filter"), ulong(0x137000000C)

    def __init__(self, name):
        self.name = name

    def apply(self, link):
        link.source.filter.put_dict({self.KEY: Described(self.TYPE, self.name)})


def modify(r, undeliverable, annotations=None):
    d = r.fetcher.unsettled.popleft()
    d.local.undeliverable = undeliverable
    d.local.annotations = annotations
    d.update(Disposition.MODIFIED)
    d.settle()


@scenario
def send_and_receive(s):
    """send and receive"""
    m = s.carried(Message(id="1", body="x", subject="s", correlation_id="c", address="t", reply_to="r", content_type="text/plain", group_id="g", ttl=300, priority=7, durable=True))
    same(("1", "x", "s", "c", "t", "r", "text/plain", "g", 300, 7, True, 0), (
        m.id, m.body, m.subject, m.correlation_id, m.address, m.reply_to, m.content_type, m.group_id, m.ttl, m.priority, m.durable, m.delivery_count), "message")
    same((1, int), (m.annotations["x-opt-sequence-number"], type(m.annotations["x-opt-enqueued-time"]) and int), "annotations")
    same([], s.left("plain"), "messages left")


@scenario
def primitives(s):
    """every primitive type as an application property"""
    sent = {
        "null": None, "yes": True, "no": False, "ubyte": ubyte(255), "byte": byte(-128), "ushort": ushort(65535), "short": short(-32768), "uint": uint(2**32 - 1),
        "int": int32(-(2**31)), "ulong": ulong(2**64 - 1), "long": -(2**63), "float": float32(0.5), "double": 0.1, "d32": decimal32(7), "d64": decimal64(8),
        "d128": decimal128(bytes(range(16))), "char": char("ß"), "at": timestamp(1700000000123), "uuid": uuid.UUID(int=7), "binary": b"\x00\xff",
        "text": "ä€𝄞", "symbol": symbol("s"), "long text": "x" * 300,
    }
    types = {k: type(v) for k, v in sent.items()}
    m = s.carried(Message(id="1", body="", properties=dict(sent)))
    got = {k: plain(v) for k, v in m.properties.items()}
    same((sent, types), ({k: got[k] for k in sent}, {k: type(got[k]) for k in sent}), "application properties")
    s.send("plain", Message(id="1", body="", properties=dict(sent)))
    with s.receiver() as r:  # what the service itself has to write again
        r.receive(timeout=5)
        modify(r, False, {"added": 1})
        m = r.receive(timeout=5)
        got = {k: plain(v) for k, v in m.properties.items()}
        same((1, sent, types), (got["added"], {k: got[k] for k in sent}, {k: type(got[k]) for k in sent}), "application properties after an abandon")


@scenario
def bodies(s):
    """bodies of every kind"""
    for body in ["text", b"data", None, True, 7, -(2**40), 0.5, uuid.UUID(int=1), symbol("s"), [1, "b", [True]], {"a": {"b": [1, 2]}}, {1: "one"}, Described(ulong(9), "x")]:
        m = s.carried(Message(id="1", body=body))  # whose memory its body is
        got = plain(m.body)
        same((body, type(body)), (got, type(got)), "body")


@scenario
def ids(s):
    """every type of id"""
    for sent in ["text", uuid.UUID(int=7), ulong(7), b"\x01"]:
        m = s.carried(Message(id=sent, correlation_id=sent, body=""))
        same((sent, sent), (plain(m.id), plain(m.correlation_id)), "ids")


@scenario
def large(s):
    """a message in many frames"""
    body = bytes(range(256)) * 800
    with contextlib.closing(connect(max_frame_size=512)) as c:
        sender = c.create_sender(s("plain"))
        sender.send(Message(id="1", body=body))
        r = c.create_receiver(s("plain"), credit=1)
        m = r.receive(timeout=5)
        same(True, body == plain(m.body), "the body is what was sent")
        r.accept()


@scenario
def too_large(s):
    """a message too large"""
    sender = s.connection.create_sender(s("plain"))
    same(256 << 10, sender.link.remote_max_message_size, "limit of the link")
    fails((SendException, LinkDetached), lambda: sender.send(Message(id="1", body=bytes(300 << 10))), "send 300 KiB")
    sender.close()
    s.send("plain", Message(id="after", body=""))
    same(["after"], s.left("plain"), "messages left")


@scenario
def presettled(s):
    """a message that is settled when it is sent"""
    sender = s.connection.create_sender(s("plain"), options=AtMostOnce())
    sender.send(Message(id="1", body=""))
    with s.receiver() as r:
        same("1", r.receive(timeout=5).id, "message")
        r.accept()


@scenario
def at_most_once(s):
    """receive and delete"""
    s.send("plain", Message(id="1", body=""))
    with s.receiver(options=AtMostOnce()) as r:
        same("1", r.receive(timeout=5).id, "message")
    same([], s.left("plain"), "messages left")


@scenario
def credit(s):
    """no more than there is credit for"""
    s.send("plain", *[Message(id=str(i), body="") for i in range(4)])
    with s.receiver(credit=0) as r:
        r.link.flow(2)
        same(["0", "1"], [r.receive(timeout=5).id for _ in range(2)], "messages")
        r.accept()
        r.accept()
        time.sleep(0.3)
        same(0, len(r.fetcher.incoming), "messages beyond the credit")
    same(["2", "3"], s.left("plain"), "messages left")


@scenario
def drain(s):
    """credit is drained"""
    s.send("plain", Message(id="1", body=""))
    with s.receiver(credit=0) as r:
        r.link.drain(5)
        s.connection.wait(lambda: r.link.credit == 0, msg="credit is used up")
        same("1", r.receive(timeout=5).id, "message")
        r.accept()


@scenario
def released(s):
    """released"""
    s.send("plain", Message(id="1", body=""))
    with s.receiver() as r:
        r.receive(timeout=5)
        r.release(delivered=False)
        m = r.receive(timeout=5)
        same(("1", 0), (m.id, m.delivery_count), "delivered again")
        r.accept()


@scenario
def modified(s):
    """modified: failed"""
    s.send("plain", Message(id="1", body="", properties={"kept": 1}))
    with s.receiver() as r:
        r.receive(timeout=5)
        r.release(delivered=True)
        m = r.receive(timeout=5)
        same((1, {"kept": 1}), (m.delivery_count, m.properties), "delivery count and properties")
        r.accept()


@scenario
def deferred(s):
    """modified: not to be delivered here, which defers"""
    s.send("plain", Message(id="1", body=""))
    with s.receiver() as r:
        number = r.receive(timeout=5).annotations["x-opt-sequence-number"]
        modify(r, True)
        nothing(r)
    ask = {"sequence-numbers": Array(proton.UNDESCRIBED, proton.Data.LONG, number), "receiver-settle-mode": uint(1)}
    status, body = s.manage("plain", "receive-by-sequence-number", ask)
    same((200, "1"), (status, decoded(body["messages"][0]["message"]).id), "deferred")
    token = body["messages"][0]["lock-token"]
    same(uuid.UUID, type(token), "lock token")
    done = {"disposition-status": "completed", "lock-tokens": Array(proton.UNDESCRIBED, proton.Data.UUID, token)}
    same(200, s.manage("plain", "update-disposition", done)[0], "completed")
    same(404, s.manage("plain", "receive-by-sequence-number", ask)[0], "received again")


@scenario
def rejected(s):
    """rejected, which dead-letters"""
    s.send("plain", Message(id="1", body=""))
    with s.receiver() as r:
        r.receive(timeout=5)
        d = r.fetcher.unsettled.popleft()
        d.local.condition = proton.Condition("com.microsoft:dead-letter", info={symbol("DeadLetterReason"): "bad", symbol("DeadLetterErrorDescription"): "very"})
        d.update(Disposition.REJECTED)
        d.settle()
        nothing(r)
    with s.receiver(suffix="/$DeadLetterQueue") as r:
        m = r.receive(timeout=5)
        same(("1", {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very"}), (m.id, m.properties), "dead letter")
        r.accept()


@scenario
def unsettled(s):
    """the service settles behind the client"""
    s.send("plain", Message(id="1", body=""))
    with s.receiver() as r:
        r.receive(timeout=5)
        d = r.fetcher.unsettled.popleft()
        d.update(Disposition.ACCEPTED)  # and waits for the service's word
        s.connection.wait(lambda: d.settled, msg="settled")
        same(Disposition.ACCEPTED, d.remote_state, "outcome")
        d.settle()
    same([], s.left("plain"), "messages left")


@scenario
def scheduled(s):
    """a message sent with a time to appear at"""
    at = int(time.time() * 1000) + 1500
    s.send("plain", Message(id="later", body="", annotations={symbol("x-opt-scheduled-enqueue-time"): timestamp(at)}), Message(id="now", body=""))
    with s.receiver() as r:
        got = [r.receive(timeout=5) for _ in range(2)]
    same(["now", "later"], [m.id for m in got], "order")
    same(True, got[1].annotations["x-opt-enqueued-time"] >= at, "enqueued when it was to be")


@scenario
def session(s):
    """a session, by a filter"""
    s.send("sessions", Message(id="1", body="", group_id="a"), Message(id="2", body="", group_id="b"))
    with s.receiver("sessions", options=Session("b")) as r:
        granted = r.link.remote_source.filter
        granted.rewind()
        granted.next()
        same({Session.KEY: Described(Session.TYPE, "b")}, granted.get_dict(), "session granted")
        same("2", r.receive(timeout=5).id, "message")
        r.accept()
    with s.receiver("sessions", options=Session(None)) as r:
        same("1", r.receive(timeout=5).id, "message of the next session")
        r.accept()


@scenario
def session_held(s):
    """a session has one holder"""
    with s.receiver("sessions", options=Session("a")):
        e = fails(LinkDetached, lambda: s.connection.create_receiver(s("sessions"), credit=1, options=Session("a"), name="again"), "accept it twice")
        same("com.microsoft:session-cannot-be-locked", e.condition, "condition")


@scenario
def no_entity(s):
    """an entity that is not there"""
    for create in [s.connection.create_sender, lambda a: s.connection.create_receiver(a, credit=1)]:
        same("amqp:not-found", fails(LinkDetached, lambda: create("nowhere"), "attach").condition, "condition")


@scenario
def no_address(s):
    """a link without an address"""
    fails((LinkDetached, LinkException), lambda: s.connection.create_sender(None), "attach")


@scenario
def selector(s):
    """a filter that the service does not know"""
    class Selector(LinkOption):
        def apply(self, link):
            link.source.filter.put_dict({symbol("apache.org:selector-filter:string"): Described(ulong(0x0000468C00000004), "a = 1")})

    s.connection.create_receiver(s("plain"), credit=1, options=Selector())


@scenario
def transactions(s):
    """transactions"""
    class Coordinator(LinkOption):
        def apply(self, link):
            link.target.type = proton.Terminus.COORDINATOR
            link.target.capabilities.put_object([symbol("amqp:local-transactions")])

    s.connection.create_sender(None, options=Coordinator(), name="coordinator")


@scenario
def wrong_password(s):
    """a wrong key"""
    fails(ConnectionException, lambda: connect(password="wrong"), "connect")
    fails(ConnectionException, lambda: connect(user="nobody"), "connect")


@scenario
def listening(s):
    """a key that may only listen"""
    s.send("plain", Message(id="1", body=""))
    with contextlib.closing(connect(user="listen")) as c:
        same("1", c.create_receiver(s("plain"), credit=1).receive(timeout=5).id, "received")
        same("amqp:unauthorized-access", fails(LinkDetached, lambda: c.create_sender(s("plain")), "attach").condition, "condition")


@scenario
def anonymous(s):
    """no key at all"""
    with contextlib.closing(connect(user=None, password=None, mechanisms="ANONYMOUS")) as c:
        same("amqp:unauthorized-access", fails(LinkDetached, lambda: c.create_sender(s("plain")), "attach").condition, "condition")


@scenario
def token(s):
    """a token on $cbs"""
    with contextlib.closing(connect(user=None, password=None, mechanisms="ANONYMOUS")) as c:
        for text, want in [("SharedAccessSignature sr=x&sig=y&se=9999999999&skn=RootManageSharedAccessKey", 401), ("a.b.c", 202)]:
            with node(c, "$cbs") as ask:
                answer = ask(text, operation="put-token", type="jwt", name=f"amqp://{HOST}/{s('plain')}")
            same(want, answer.properties["status-code"], "status")
        c.create_sender(s("plain")).send(Message(id="1", body=""))
    same(["1"], s.left("plain"), "messages left")


@scenario
def heartbeat(s):
    """a connection that is kept alive"""
    with contextlib.closing(connect(heartbeat=1)) as c:
        sender = c.create_sender(s("plain"))
        end = time.monotonic() + 3
        fails(proton.Timeout, lambda: c.wait(lambda: time.monotonic() > end + 9, timeout=3, msg="silence"), "wait")
        sender.send(Message(id="1", body=""))


@scenario
def reattach(s):
    """a link of the same name, again"""
    for i in range(3):
        sender = s.connection.create_sender(s("plain"), name="mine")
        sender.send(Message(id=str(i), body=""))
        sender.close()
    same(["0", "1", "2"], s.left("plain"), "messages")


run("qpid", SCENARIOS, at_once=8)
