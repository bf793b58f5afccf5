"use strict";

const { delay } = require("@azure/service-bus");
const { same, fails } = require("./report");
const { client, ids, message, take, send, receiver, dead, deleting, left, becomes, settle, other } = require("./bus");

module.exports = {
  "receive and delete": async (q) => {
    await send(q("plain"), [message("1"), message("2")]);
    await receiver(q("plain"), async (r) => {
      const messages = await take(r, 2);
      same(["1", "2"], ids(messages), "messages");
      await fails(() => r.completeMessage(messages[0]), "complete one");
    }, deleting);
    await left(q("plain"), []);
  },
  "peek takes nothing": async (q) => {
    await send(q("plain"), [message("1"), message("2")]);
    await receiver(q("plain"), async (r) => {
      same(["1", "2"], ids(await r.peekMessages(5)), "peeked");
      const messages = await take(r, 2);
      same(["1", "2"], ids(messages), "received");
      same([0, 0], messages.map((m) => m.deliveryCount), "delivery counts");
    });
    await left(q("plain"), ["1", "2"]); // what is locked is peeked too
  },
  "peek from a sequence number": async (q) => {
    await send(q("plain"), ["1", "2", "3", "4"].map((id) => message(id)));
    await receiver(q("plain"), async (r) => {
      const all = await r.peekMessages(2);
      same(["1", "2"], ids(all), "the first two");
      same(["3", "4"], ids(await r.peekMessages(5)), "where the last peek ended");
      same([], ids(await r.peekMessages(5)), "behind the last");
      same(["2", "3"], ids(await r.peekMessages(2, { fromSequenceNumber: all[1].sequenceNumber })), "from the second");
    });
  },
  "nothing to receive": async (q) => {
    await receiver(q("plain"), async (r) => {
      const start = Date.now();
      same([], ids(await r.receiveMessages(1, { maxWaitTimeInMs: 500 })), "messages");
      same(true, Date.now() - start < 3000, "it came back in time");
      await send(q("plain"), message("1"));
      same(["1"], ids(await take(r, 1)), "the receiver goes on");
    });
  },
  "hundreds of messages in order": async (q) => {
    const names = [...Array(500).keys()].map((i) => `${i}`);
    await send(q("plain"), names.map((id) => message(id)));
    await receiver(q("plain"), async (r) => {
      const got = [];
      while (got.length < names.length) {
        const messages = await r.receiveMessages(70, { maxWaitTimeInMs: 5000 });
        if (messages.length === 0) break;
        got.push(...ids(messages));
        await Promise.all(messages.map((m) => r.completeMessage(m)));
      }
      same(names, got, "order");
    });
    await left(q("plain"), []);
  },
  "abandon counts": async (q) => {
    await send(q("plain"), message("1", { applicationProperties: { kept: 1, why: "first" } }));
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      await r.abandonMessage(m, { why: "later" });
      const [again] = await take(r, 1);
      same([1, 1, "later"], [again.deliveryCount, again.applicationProperties.kept, again.applicationProperties.why], "delivery count and properties");
      await r.completeMessage(again);
    });
  },
  "abandoned too often": async (q) => {
    await send(q("short"), message("1"));
    await receiver(q("short"), async (r) => {
      for (const n of [0, 1, 2]) {
        const [m] = await take(r, 1);
        same(n, m.deliveryCount, "delivery count");
        await r.abandonMessage(m);
      }
      same([], ids(await r.receiveMessages(1, { maxWaitTimeInMs: 300 })), "messages left");
    });
    await receiver(q("short"), async (r) => {
      const [m] = await take(r, 1);
      same("MaxDeliveryCountExceeded", m.deadLetterReason, "reason");
      same(true, /3 delivery attempts/.test(m.deadLetterErrorDescription), m.deadLetterErrorDescription);
    }, dead);
  },
  "defer and receive deferred": async (q) => {
    await send(q("plain"), [message("1"), message("2")]);
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      await r.deferMessage(m, { seen: true });
      same(["2"], ids(await take(r, 1)), "the next one");
      const [deferred] = await r.receiveDeferredMessages(m.sequenceNumber);
      same(["1", "deferred", true, 0], [deferred.messageId, deferred.state, deferred.applicationProperties.seen, deferred.deliveryCount], "message");
      await r.completeMessage(deferred);
    });
  },
  "a deferred message is settled every way": async (q) => {
    await send(q("plain"), ["1", "2", "3", "4"].map((id) => message(id)));
    await receiver(q("plain"), async (r) => {
      const messages = await take(r, 4);
      await settle(r, "defer", messages);
      const numbers = messages.map((m) => m.sequenceNumber);
      const deferred = await r.receiveDeferredMessages(numbers);
      same(["1", "2", "3", "4"], ids(deferred), "deferred");
      await r.completeMessage(deferred[0]);
      await r.abandonMessage(deferred[1], { tried: 1 });
      await r.deferMessage(deferred[2]);
      await r.deadLetterMessage(deferred[3], { deadLetterReason: "bad", deadLetterErrorDescription: "very" });
      const [second, third] = await r.receiveDeferredMessages(numbers.slice(1, 3));
      same(["2", 1, 1, "3", 0], [second.messageId, second.deliveryCount, second.applicationProperties.tried, third.messageId, third.deliveryCount], "what is deferred again");
    });
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      same(["4", "bad", "very"], [m.messageId, m.deadLetterReason, m.deadLetterErrorDescription], "dead letter");
    }, dead);
  },
  "a deferred message that is not there": async (q) => {
    await send(q("plain"), message("1"));
    await receiver(q("plain"), async (r) => {
      const [m] = await r.peekMessages(1);
      same("MessageNotFound", (await fails(() => r.receiveDeferredMessages(m.sequenceNumber), "receive one that is not deferred")).code, "code");
      const [got] = await take(r, 1);
      await r.deferMessage(got);
      same("MessageNotFound", (await fails(() => r.receiveDeferredMessages([got.sequenceNumber, got.sequenceNumber.add(7)]), "receive one too many")).code, "code");
      const [deferred] = await r.receiveDeferredMessages(got.sequenceNumber);
      await r.completeMessage(deferred);
      same("MessageNotFound", (await fails(() => r.receiveDeferredMessages(got.sequenceNumber), "receive it again")).code, "code");
    });
  },
  "deferred, received and deleted": async (q) => {
    await send(q("plain"), message("1"));
    await receiver(q("plain"), async (r) => settle(r, "defer", await take(r, 1)));
    await receiver(q("plain"), async (r) => {
      const [m] = await r.peekMessages(1);
      same("deferred", m.state, "state");
      same(["1"], ids(await r.receiveDeferredMessages(m.sequenceNumber)), "message");
    }, deleting);
    await left(q("plain"), []);
  },
  "dead-letter and read it": async (q) => {
    await send(q("plain"), message("1", { applicationProperties: { kept: 1 } }));
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      await r.deadLetterMessage(m, { deadLetterReason: "bad", deadLetterErrorDescription: "very", mine: "too" });
    });
    await left(q("plain"), []);
    await left(q("plain"), ["1"], dead);
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      same(["1", "bad", "very", "too", 1], [m.messageId, m.deadLetterReason, m.deadLetterErrorDescription, m.applicationProperties.mine, m.applicationProperties.kept], "dead letter");
      await r.completeMessage(m);
    }, dead);
    await left(q("plain"), [], dead);
  },
  "a dead letter is abandoned": async (q) => {
    await send(q("short"), message("1"));
    await receiver(q("short"), async (r) => settle(r, "deadLetter", await take(r, 1)));
    await receiver(q("short"), async (r) => {
      for (let i = 0; i < 5; i++) await settle(r, "abandon", await take(r, 1)); // more often than a queue lets it
      await settle(r, "complete", await take(r, 1));
    }, dead);
  },
  "a message expires": async (q) => {
    await send(q("plain"), [message("1", { timeToLive: 200 }), message("2")]);
    await delay(400);
    await receiver(q("plain"), async (r) => same(["2"], ids(await take(r, 1)), "messages"), deleting);
    await left(q("plain"), [], dead);
  },
  "an expired message is dead-lettered": async (q) => {
    await send(q("short"), message("1", { timeToLive: 200 }));
    await receiver(q("short"), async (r) => {
      const [m] = await take(r, 1);
      same(["1", "TTLExpiredException"], [m.messageId, m.deadLetterReason], "dead letter");
    }, dead);
  },
  "a message is settled once": async (q) => {
    await send(q("plain"), message("1"));
    await receiver(q("plain"), async (r) => {
      const [m] = await take(r, 1);
      await r.completeMessage(m);
      await fails(() => r.completeMessage(m), "complete it again");
    });
  },
  "two receivers share a queue": async (q) => {
    const names = [...Array(40).keys()].map((i) => `${i}`);
    await send(q("plain"), names.map((id) => message(id)));
    const got = await Promise.all([0, 1].map(() => receiver(q("plain"), async (r) => {
      const mine = [];
      while (mine.length < 20) {
        const messages = await r.receiveMessages(20 - mine.length, { maxWaitTimeInMs: 5000 });
        if (messages.length === 0) break;
        mine.push(...messages);
        await settle(r, "complete", messages);
      }
      return mine;
    })));
    for (const mine of got) same(mine.map((m) => m.sequenceNumber.toNumber()).toSorted((a, b) => a - b), mine.map((m) => m.sequenceNumber.toNumber()), "order");
    same(names.toSorted(), ids(got.flat()).toSorted(), "each message went to one of them");
    await left(q("plain"), []);
  },
  "iterate over a receiver": async (q) => {
    await send(q("plain"), [message("1"), message("2")]);
    await receiver(q("plain"), async (r) => {
      const seen = [];
      for await (const m of r.getMessageIterator()) {
        seen.push(m.messageId);
        await r.completeMessage(m);
        if (seen.length === 2) break;
      }
      same(["1", "2"], seen, "messages");
    });
  },
  "a handler receives": async (q) => {
    await send(q("plain"), [message("1"), message("2"), message("3")]);
    await receiver(q("plain"), async (r) => {
      const seen = [];
      const done = later();
      const s = r.subscribe({
        processMessage: async (m) => { if (seen.push(m.messageId) === 3) done.resolve(); },
        processError: async (x) => done.reject(x.error),
      });
      await done.promise;
      same(["1", "2", "3"], seen, "messages");
      await becomes(q("plain"), []);
      await s.close();
    });
  },
  "a handler that fails": async (q) => {
    await send(q("short"), message("1"));
    const done = later();
    await receiver(q("short"), async (r) => {
      const counts = [];
      const errors = [];
      r.subscribe({
        processMessage: async (m) => {
          if (counts.push(m.deliveryCount) === 3) done.resolve();
          throw new Error("not today");
        },
        processError: async (x) => errors.push(`${x.errorSource} ${x.error.message}`),
      });
      await done.promise;
      await becomes(q("short"), ["1"], dead);
      same([[0, 1, 2], Array(3).fill("processMessageCallback not today")], [counts, errors], "deliveries and errors");
    });
  },
  "a handler with messages at once": async (q) => {
    await send(q("plain"), [message("1"), message("2")]);
    await receiver(q("plain"), async (r) => {
      const [both, seen] = [later(), new Set()];
      r.subscribe({
        processMessage: async (m) => {
          if (seen.add(m.messageId).size === 2) both.resolve();
          await both.promise; // neither ends before the other has begun
        },
        processError: async (x) => both.reject(x.error),
      }, { maxConcurrentCalls: 2 });
      await both.promise;
      await becomes(q("plain"), []);
    });
  },
  "close while receiving": async (q) => {
    const r = client.createReceiver(q("plain"));
    const waiting = await receiving(q, r, 2000);
    await r.close();
    same([], ids(await waiting.messages), "messages"); // when its time is over: this client does not hear of the end before
    await send(q("plain"), message("1"));
    await receiver(q("plain"), async (again) => {
      const [m] = await take(again, 1);
      same(["1", 0], [m.messageId, m.deliveryCount], "nobody else got it");
    });
  },
  "close the client while receiving": async (q) => {
    await other(async (c) => {
      const waiting = await receiving(q, c.createReceiver(q("plain")), 9000);
      await c.close();
      await Promise.allSettled([waiting.messages]);
    });
    await send(q("plain"), message("1"));
    await receiver(q("plain"), async (r) => same(["1"], ids(await take(r, 1)), "messages"));
  },
};

// receiving begins to receive where nothing is, on a link that is open: a message has come through it.
async function receiving(q, r, maxWaitTimeInMs) {
  await send(q("plain"), message("0"));
  await r.completeMessage((await take(r, 1))[0]);
  const messages = r.receiveMessages(1, { maxWaitTimeInMs });
  messages.catch(() => {}); // until somebody waits for it: Node.js ends the process for a failure that nobody sees
  await new Promise(setImmediate); // it has asked for a message when all that could be done at once is done
  return { messages }; // not the promise itself, which would be waited for here
}

function later() {
  const d = {};
  d.promise = new Promise((resolve, reject) => Object.assign(d, { resolve, reject }));
  return d;
}
