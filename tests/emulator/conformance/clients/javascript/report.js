"use strict";

// Runs scenarios and prints what became of each as one line of JSON.
//
// A scenario passes, or it is "refused" when the server said by name that it does not do this, or it is "wrong":
// a result, an error or a silence that the real service would not give.

const refusal = /not supported|not implemented|NotImplemented|does not support/i;

const seconds = 25; // for one scenario; only one that hangs needs them

function within(promise, what) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${seconds} s: ${what}`)), seconds * 1000);
  });
  return Promise.race([promise, silence]).finally(() => clearTimeout(timer));
}

class Mismatch extends Error {}

// run goes through the scenarios, so many at a time. Each is given a function that makes names that are its alone.
exports.run = async function (area, scenarios, atOnce = 1) {
  const waiting = Object.entries(scenarios).map(([name, scenario], n) => ({ name, scenario, own: (kind) => `${kind}${n}` }));
  const one = async ({ name, scenario, own }) => {
    let outcome = "passed";
    let detail = "";
    try {
      await within(scenario(own), name);
    } catch (e) {
      detail = `${e.name}${e.code ? ` (${e.code})` : ""}: ${e.message}`.split("\n")[0];
      outcome = !(e instanceof Mismatch) && refusal.test(`${e.codeName} ${detail}`) ? "refused" : "wrong";
    }
    process.stdout.write(JSON.stringify({ area, name, outcome, detail }) + "\n");
  };
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (waiting.length > 0) await one(waiting.shift());
  }));
};

// same compares two values that JSON can show.
exports.same = function (want, got, what) {
  const [a, b] = [JSON.stringify(want), JSON.stringify(got)];
  if (a !== b) throw new Mismatch(`${what}: want ${a}, got ${b}`);
};

// fails runs an action that must fail and returns its error.
exports.fails = async function (action, what) {
  let result;
  try {
    result = await action();
  } catch (e) {
    return e;
  }
  throw new Mismatch(`${what}: succeeded with ${JSON.stringify(result)}`);
};
