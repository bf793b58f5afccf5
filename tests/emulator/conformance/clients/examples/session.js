const { ServiceBusClient } = require("@azure/service-bus");
const { SERVICE_BUS_CONNECTION_STRING: connection, SERVICE_BUS_TOPIC: topic, SERVICE_BUS_SUBSCRIPTION: subscription } = process.env;

(async () => {
  const client = new ServiceBusClient(connection);
  await client.createSender(topic).sendMessages({ body: "paid", sessionId: "order-1" });
  const session = await client.acceptNextSession(topic, subscription);
  for (const message of await session.receiveMessages(1)) {
    console.log(`${session.sessionId}: ${message.body}`);
    await session.completeMessage(message);
  }
  await client.close();
})();
