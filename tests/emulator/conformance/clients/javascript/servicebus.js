"use strict";

// Service Bus with @azure/service-bus. ../servicebus.json lists the scenarios of all languages.

const { client } = require("./bus");
const { run } = require("./report");

run("servicebus", {
  ...require("./servicebus-send"), ...require("./servicebus-receive"), ...require("./servicebus-locks"),
  ...require("./servicebus-sessions"), ...require("./servicebus-topics"),
}, 16).then(() => client.close());
