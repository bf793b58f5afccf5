// Does with @azure/service-bus what the services do themselves over AMQP; clients_test.go records it.
const Long = require("long");
const { ServiceBusClient } = require("@azure/service-bus");
const { SERVICE_BUS_CONNECTION_STRING: connection, SERVICE_BUS_TOPIC: topic, SERVICE_BUS_SUBSCRIPTION: subscription } = process.env;

(async () => {
  const client = new ServiceBusClient(connection);
  const sender = client.createSender(topic);
  const batch = await sender.createMessageBatch();
  for (const id of ["1", "2", "3"]) {
    batch.tryAddMessage({
      body: Buffer.from(id), messageId: id, sessionId: "theirs", partitionKey: "theirs", subject: id, contentType: "application/json",
      applicationProperties: { epoch: 1 },
    });
  }
  await sender.sendMessages(batch);
  await sender.close();
  const session = await client.acceptNextSession(topic, subscription);
  const messages = [];
  while (messages.length < 3) messages.push(...(await session.receiveMessages(3 - messages.length)));
  await session.completeMessage(messages[0]);
  await session.deadLetterMessage(messages[1], { deadLetterReason: "why", deadLetterErrorDescription: "why" });
  await session.completeMessage(messages[2]);
  await session.renewSessionLock();
  await session.close();
  const letters = client.createReceiver(topic, subscription, { subQueueType: "deadLetter" });
  await letters.peekMessages(1, { fromSequenceNumber: Long.ZERO });
  await letters.close();
  await client.close();
})();
