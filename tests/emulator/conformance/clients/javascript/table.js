"use strict";

// The scenarios of ../mongodb.json, which every language runs.

const { readFileSync } = require("node:fs");
const { EJSON } = require("bson");
const { same, fails } = require("./report");

const sorted = (v) => JSON.stringify(EJSON.serialize(v));

exports.table = function (db) {
  let n = 0;
  const scenarios = {};
  const text = readFileSync(`${__dirname}/../mongodb.json`, "utf8");
  for (const { name } of JSON.parse(text)) {
    scenarios[name] = async () => {
      const [c, other] = [db.collection(`t${++n}`), db.collection(`o${n}`)];
      const s = EJSON.parse(text.replaceAll("OTHER", other.collectionName)).find((x) => x.name === name);
      await c.insertMany(s.docs);
      if (s.other) await other.insertMany(s.other);
      const options = { collation: s.collation, projection: s.projection, sort: s.sort };
      const run = async () => {
        if (s.aggregate) return c.aggregate(s.aggregate).toArray();
        if (s.find) return c.find(s.find, options).toArray();
        await c.updateOne({}, s.update);
        return c.find().toArray();
      };
      if (s.error) {
        same(s.error, (await fails(run, name)).code, "code");
        return;
      }
      same(sorted(s.want), sorted(await run()), "result");
      if (s.after) same(sorted(s.after), sorted(await other.find().sort({ _id: 1 }).toArray()), "the other collection");
    };
  }
  return scenarios;
};
