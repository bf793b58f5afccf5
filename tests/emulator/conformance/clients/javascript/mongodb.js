"use strict";

// MongoDB with its Node driver.

const { MongoClient, ObjectId, Decimal128, Timestamp, Long } = require("mongodb");
const { same, fails, run } = require("./report");
const { table } = require("./table");

const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 5000 });
const db = client.db("javascript");

let n = 0;
const fresh = () => db.collection(`c${++n}`);

async function filled(docs) {
  const c = fresh();
  await c.insertMany(docs);
  return c;
}

const scenarios = {
  "insert and find": async () => {
    const c = fresh();
    const _id = new ObjectId();
    const at = new Date(1e12);
    await c.insertOne({ _id, text: "x", n: 1, d: 1.5, long: Long.fromNumber(2 ** 40), yes: true, at, list: [1, { a: null }], price: Decimal128.fromString("1.10") });
    const doc = await c.findOne({ "list.a": null, at: { $gte: at } }, { promoteLongs: false });
    same([_id.toHexString(), "x", 1, 1.5, "1099511627776", true, at, [1, { a: null }], "1.10"],
      [doc._id.toHexString(), doc.text, doc.n.value ?? doc.n, doc.d.value ?? doc.d, doc.long.toString(), doc.yes, doc.at, doc.list.map((x) => x.value ?? x), doc.price.toString()], "document");
  },
  "find sorted, skipped, limited, projected": async () => {
    const c = await filled([{ _id: 1, a: 3 }, { _id: 2, a: 1 }, { _id: 3, a: 2 }, { _id: 4, a: 1 }]);
    same([{ _id: 4 }, { _id: 3 }], await c.find({}, { projection: { _id: 1 } }).sort({ a: 1, _id: 1 }).skip(1).limit(2).toArray(), "found");
    same(4, await c.countDocuments(), "count");
    same([1, 2, 3], (await c.distinct("a")).sort(), "distinct");
  },
  "a cursor of many batches": async () => {
    const c = await filled(Array.from({ length: 250 }, (_, i) => ({ _id: i })));
    const seen = [];
    for await (const d of c.find({}, { batchSize: 20 }).sort({ _id: 1 })) seen.push(d._id);
    same([250, 0, 249], [seen.length, seen[0], seen[249]], "documents");
  },
  "update": async () => {
    const c = await filled([{ _id: 1, n: 1, tags: ["a"], rows: [{ k: 1, v: 1 }, { k: 2, v: 1 }] }]);
    const r = await c.updateOne({ _id: 1 }, {
      $inc: { n: 2, "rows.$[r].v": 10 }, $push: { tags: { $each: ["c", "b"], $sort: 1, $slice: 2 } }, $set: { "deep.x": 1 }, $currentDate: { at: true }, $unset: { none: 1 },
    }, { arrayFilters: [{ "r.k": 2 }] });
    same([1, 1], [r.matchedCount, r.modifiedCount], "counts");
    const d = await c.findOne({ _id: 1 }, { projection: { at: 0 } });
    same({ _id: 1, n: 3, tags: ["a", "b"], rows: [{ k: 1, v: 1 }, { k: 2, v: 11 }], deep: { x: 1 } }, d, "document");
    await c.updateMany({}, [{ $set: { total: { $sum: "$rows.v" } } }]);
    same(12, (await c.findOne({ _id: 1 })).total, "by a pipeline");
  },
  "upsert and replace": async () => {
    const c = fresh();
    const r = await c.updateOne({ _id: "k", kind: "x" }, { $setOnInsert: { n: 1 } }, { upsert: true });
    same(["k", 1], [r.upsertedId, r.upsertedCount], "upserted");
    await c.replaceOne({ _id: "k" }, { n: 2 });
    same([{ _id: "k", n: 2 }], await c.find().toArray(), "documents");
  },
  "find one and modify": async () => {
    const c = await filled([{ _id: 1, n: 1 }]);
    same({ _id: 1, n: 1 }, await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }), "before");
    same({ _id: 1, n: 3 }, await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }, { returnDocument: "after" }), "after");
    same({ _id: 1, n: 3 }, await c.findOneAndDelete({ _id: 1 }), "deleted");
    same(null, await c.findOneAndDelete({ _id: 1 }), "nothing");
  },
  "bulk write": async () => {
    const c = fresh();
    const r = await c.bulkWrite([
      { insertOne: { document: { _id: 1, n: 1 } } }, { insertOne: { document: { _id: 2 } } },
      { updateOne: { filter: { _id: 1 }, update: { $inc: { n: 1 } } } }, { deleteOne: { filter: { _id: 2 } } },
      { replaceOne: { filter: { _id: 3 }, replacement: { n: 9 }, upsert: true } },
    ]);
    same([2, 1, 1, 1], [r.insertedCount, r.modifiedCount, r.deletedCount, r.upsertedCount], "counts");
    same([{ _id: 1, n: 2 }, { _id: 3, n: 9 }], await c.find().sort({ _id: 1 }).toArray(), "documents");
  },
  "bulk write of several collections": async () => {
    const [a, b] = [fresh(), fresh()];
    const r = await client.bulkWrite([
      { namespace: a.namespace, name: "insertOne", document: { _id: 1 } },
      { namespace: b.namespace, name: "insertOne", document: { _id: 2 } },
    ]);
    same(2, r.insertedCount, "inserted");
    same(1, await b.countDocuments(), "count");
  },
  "a duplicate key": async () => {
    const c = await filled([{ _id: 1 }]);
    const e = await fails(() => c.insertMany([{ _id: 0 }, { _id: 1 }, { _id: 2 }], { ordered: false }), "insert");
    same([11000, 2], [e.code, e.insertedCount], "error");
    same(3, await c.countDocuments(), "documents");
  },
  "indexes": async () => {
    const c = await filled([{ _id: 1, mail: "a", t: 1 }]);
    same("mail_1", await c.createIndex({ mail: 1 }, { unique: true }), "name");
    await c.createIndex({ t: -1, mail: 1 }, { name: "mine", partialFilterExpression: { t: { $gt: 0 } } });
    same(["_id_", "mail_1", "mine"], (await c.indexes()).map((i) => i.name), "indexes");
    same(11000, (await fails(() => c.insertOne({ mail: "a" }), "insert")).code, "code");
    await c.dropIndex("mine");
    same(2, (await c.indexes()).length, "indexes left");
  },
  "aggregate": async () => {
    const c = await filled([{ _id: 1, k: "a", n: 1 }, { _id: 2, k: "b", n: 2 }, { _id: 3, k: "a", n: 3, list: [7, 8] }]);
    const got = await c.aggregate([{ $match: { n: { $gt: 0 } } }, { $group: { _id: "$k", sum: { $sum: "$n" }, avg: { $avg: "$n" }, ids: { $push: "$_id" } } }, { $sort: { _id: 1 } }]).toArray();
    same([{ _id: "a", sum: 4, avg: 2, ids: [1, 3] }, { _id: "b", sum: 2, avg: 2, ids: [2] }], got, "groups");
    same([{ _id: 3, list: 7 }, { _id: 3, list: 8 }], await c.aggregate([{ $unwind: "$list" }, { $project: { list: 1 } }]).toArray(), "unwound");
  },
  "aggregate: look up another collection": async () => {
    const other = await filled([{ _id: "a", name: "A" }]);
    const c = await filled([{ _id: 1, k: "a" }, { _id: 2, k: "b" }]);
    const got = await c.aggregate([{ $lookup: { from: other.collectionName, localField: "k", foreignField: "_id", as: "found" } }, { $sort: { _id: 1 } }]).toArray();
    same([[{ _id: "a", name: "A" }], []], got.map((d) => d.found), "found");
  },
  "aggregate: facets and counts": async () => {
    const c = await filled([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
    same([{ all: [{ n: 2 }], big: [{ _id: 2 }] }], await c.aggregate([{ $facet: { all: [{ $count: "n" }], big: [{ $match: { n: 2 } }, { $project: { _id: 1 } }] } }]).toArray(), "facets");
  },
  "aggregate: parts of a date": async () => {
    const c = await filled([{ _id: 1, at: new Date("2024-05-06T07:08:09Z") }]);
    const got = await c.aggregate([{ $project: { _id: 0, y: { $year: "$at" }, m: { $month: "$at" }, text: { $dateToString: { format: "%Y-%m-%d", date: "$at" } } } }]).toArray();
    same([{ y: 2024, m: 5, text: "2024-05-06" }], got, "parts");
  },
  "aggregate: buckets": async () => {
    const c = await filled([{ _id: 1, n: 1 }, { _id: 2, n: 5 }, { _id: 3, n: 6 }]);
    same([{ _id: 0, count: 1 }, { _id: 5, count: 2 }], await c.aggregate([{ $bucket: { groupBy: "$n", boundaries: [0, 5, 10] } }]).toArray(), "buckets");
  },
  "aggregate: write with $merge": async () => {
    const [c, to] = [await filled([{ _id: 1, n: 1 }]), fresh()];
    await c.aggregate([{ $merge: { into: to.collectionName } }]).toArray();
    same([{ _id: 1, n: 1 }], await to.find().toArray(), "written");
  },
  "a transaction commits and aborts": async () => {
    const c = await filled([{ _id: 1, n: 0 }]);
    const session = client.startSession();
    try {
      await session.withTransaction(async () => {
        await c.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
        await c.insertOne({ _id: 2 }, { session });
        same(1, await c.countDocuments(), "seen outside");
      });
      same(2, await c.countDocuments(), "seen after the commit");
      session.startTransaction();
      await c.deleteMany({}, { session });
      await session.abortTransaction();
      same(2, await c.countDocuments(), "seen after the abort");
    } finally {
      await session.endSession();
    }
  },
  "transactions conflict": async () => {
    const c = await filled([{ _id: 1, n: 0 }]);
    const [a, b] = [client.startSession(), client.startSession()];
    try {
      a.startTransaction();
      b.startTransaction();
      await c.updateOne({ _id: 1 }, { $set: { n: 1 } }, { session: a });
      const e = await fails(() => c.updateOne({ _id: 1 }, { $set: { n: 2 } }, { session: b }), "update");
      same([112, true], [e.code, e.hasErrorLabel("TransientTransactionError")], "error");
      await a.commitTransaction();
    } finally {
      await a.endSession();
      await b.endSession();
    }
  },
  "a change stream, and resume": async () => {
    const c = await filled([{ _id: 0 }]);
    const stream = c.watch([], { fullDocument: "updateLookup" });
    await stream.tryNext(); // it is open from here on
    await c.insertOne({ _id: 1, n: 1 });
    await c.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await c.deleteOne({ _id: 1 });
    const first = await stream.next();
    same(["insert", { _id: 1, n: 1 }], [first.operationType, first.fullDocument], "first event");
    await stream.close();
    const resumed = c.watch([], { resumeAfter: first._id });
    const second = await resumed.next();
    same(["update", { n: 2 }], [second.operationType, second.updateDescription.updatedFields], "second event");
    same("delete", (await resumed.next()).operationType, "third event");
    await resumed.close();
  },
  "a causally consistent session": async () => {
    const c = fresh();
    const session = client.startSession({ causalConsistency: true });
    await c.insertOne({ _id: 1 }, { session });
    same({ _id: 1 }, await c.findOne({ _id: 1 }, { session, readPreference: "secondaryPreferred" }), "read back");
    await session.endSession();
  },
  "a timestamp of zero is filled in": async () => {
    const c = await filled([{ _id: 1, at: new Timestamp({ t: 0, i: 0 }), deep: { at: new Timestamp({ t: 0, i: 0 }) } }]);
    const d = await c.findOne();
    same([true, true], [d.at.high > 0, d.deep.at.isZero()], "filled in at the top, and only there");
  },
  "a bad name is refused": async () => {
    same(73, (await fails(() => db.collection("a$b").insertOne({}), "insert")).code, "code");
  },
  "collections": async () => {
    const c = await filled([{ _id: 1 }]);
    same([c.collectionName], (await db.listCollections({ name: c.collectionName }).toArray()).map((x) => x.name), "listed");
    same(true, await c.drop(), "dropped");
    same([], await db.listCollections({ name: c.collectionName }).toArray(), "listed after");
  },
  "a capped collection": async () => {
    const c = await db.createCollection(`c${++n}`, { capped: true, size: 4096, max: 2 });
    await c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    same([{ _id: 2 }, { _id: 3 }], await c.find().toArray(), "documents");
  },
  "a validator": async () => {
    const c = await db.createCollection(`c${++n}`, { validator: { $jsonSchema: { required: ["k"] } } });
    same(121, (await fails(() => c.insertOne({}), "insert")).code, "code");
    await c.insertOne({ k: 1 });
  },
  "a document that expires": async () => {
    const c = fresh();
    same("at_1", await c.createIndex({ at: 1 }, { expireAfterSeconds: 3600 }), "index");
    await c.insertOne({ _id: 1, at: new Date() });
    same(1, await c.countDocuments(), "documents");
  },
  "administration": async () => {
    same(1, (await db.command({ ping: 1 })).ok, "ping");
    same(true, (await db.admin().serverInfo()).version.split(".").length >= 3, "version");
    same(true, (await db.admin().listDatabases()).databases.some((d) => d.name === "javascript"), "databases");
    same("rs0", (await db.command({ hello: 1 })).setName, "replica set");
  },
  "statistics of a database": async () => {
    await filled([{ _id: 1 }]);
    same(true, (await db.stats()).collections > 0, "collections");
  },
  "the state of the replica set": async () => {
    same("PRIMARY", (await client.db("admin").command({ replSetGetStatus: 1 })).members[0].stateStr, "state");
  },
};

run("mongodb", { ...scenarios, ...table(db) }).then(() => client.close());
