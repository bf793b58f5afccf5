// MongoDB with its shell: what is typed into it, and what its helpers ask of a server. Run by the shell itself.

const { readFileSync } = require("node:fs");
const refusal = /not supported|not implemented|NotImplemented|does not support/i;

class Mismatch extends Error {}

function same(want, got, what) {
  const [a, b] = [want, got].map((v) => EJSON.stringify(v));
  if (a !== b) throw new Mismatch(`${what}: want ${a}, got ${b}`);
}

function fails(action, what) {
  let result;
  try {
    result = action();
  } catch (e) {
    return e;
  }
  throw new Mismatch(`${what}: succeeded with ${EJSON.stringify(result)}`);
}

db = connect(process.env.MONGODB_URI.replace("/?", "/shell?"));

const scenarios = {
  "write and find": () => {
    same(1, Object.keys(db.w.insertMany([{ _id: 1, n: 1 }]).insertedIds).length, "inserted");
    same(1, db.w.updateOne({ _id: 1 }, { $inc: { n: 2 } }).modifiedCount, "modified");
    same([{ _id: 1, n: 3 }], db.w.find().toArray(), "found");
    same({ _id: 1, n: 3 }, db.w.findOneAndDelete({ n: 3 }), "deleted");
    same(0, db.w.countDocuments(), "count");
  },
  "types of the shell": () => {
    const d = { _id: 1, l: Long("7"), i: Int32(7), d: Double(1.5), dec: Decimal128("1.50"), at: ISODate("2020-01-01T00:00:00Z"), id: ObjectId("507f1f77bcf86cd799439011"), b: HexData(0, "00ff"), u: UUID("00000000-0000-0000-0000-000000000007"), t: Timestamp(1, 2), r: /x/i, min: MinKey(), max: MaxKey() };
    db.types.insertOne(d);
    same(d, db.types.findOne(), "document");
  },
  "a cursor": () => {
    db.cursor.insertMany([...Array(300).keys()].map((i) => ({ _id: i })));
    const c = db.cursor.find({ _id: { $gte: 10 } }).sort({ _id: -1 }).skip(1).limit(250).batchSize(100);
    same([true, 298], [c.hasNext(), c.next()._id], "first");
    same(249, c.itcount(), "the rest");
    let n = 0;
    db.cursor.find().forEach(() => { n++; });
    same(300, n, "each");
  },
  "an aggregation": () => {
    db.sums.insertMany([{ k: "a", n: 1 }, { k: "b", n: 2 }, { k: "a", n: 3 }]);
    same([{ _id: "a", n: 4 }, { _id: "b", n: 2 }], db.sums.aggregate([{ $group: { _id: "$k", n: { $sum: "$n" } } }, { $sort: { _id: 1 } }]).toArray(), "groups");
    same(["a", "b"], db.sums.distinct("k").sort(), "distinct");
  },
  "bulk writes": () => {
    const r = db.bulk.bulkWrite([{ insertOne: { document: { _id: 1 } } }, { updateOne: { filter: { _id: 2 }, update: { $set: { n: 1 } }, upsert: true } }, { deleteOne: { filter: { _id: 1 } } }]);
    same([1, 1, 1], [r.insertedCount, r.upsertedCount, r.deletedCount], "counts");
  },
  "indexes": () => {
    db.ix.insertOne({ _id: 1, a: 1 });
    same("a_1", db.ix.createIndex({ a: 1 }, { unique: true }), "name");
    same(["_id_", "a_1"], db.ix.getIndexes().map((i) => i.name), "indexes");
    same(11000, fails(() => db.ix.insertOne({ a: 1 }), "insert a duplicate").code, "code");
    db.ix.dropIndex("a_1");
    same(1, db.ix.getIndexes().length, "indexes left");
  },
  "names": () => {
    db.names.insertOne({});
    same(true, db.getCollectionNames().includes("names"), "collections");
    same(true, db.getMongo().getDBNames().includes("shell"), "databases");
    same("shell", db.getName(), "name");
    same("names", db.getCollectionInfos({ name: "names" })[0].name, "infos");
  },
  "renamed and dropped": () => {
    db.old.insertOne({ _id: 1 });
    same(1, db.old.renameCollection("new").ok, "renamed");
    same(1, db.getCollection("new").countDocuments(), "count");
    same(true, db.getCollection("new").drop(), "dropped");
    const other = db.getSiblingDB("gone");
    other.c.insertOne({});
    same(1, other.dropDatabase().ok, "dropped");
  },
  "a view and a capped collection": () => {
    db.base.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
    db.createView("big", "base", [{ $match: { n: { $gt: 1 } } }]);
    same([{ _id: 2, n: 2 }], db.big.find().toArray(), "view");
    db.createCollection("ring", { capped: true, size: 4096, max: 1 });
    db.ring.insertMany([{ _id: 1 }, { _id: 2 }]);
    same([true, [{ _id: 2 }]], [db.ring.isCapped(), db.ring.find().toArray()], "capped");
  },
  "a transaction": () => {
    db.tx.insertOne({ _id: 0 });
    const s = db.getMongo().startSession();
    s.startTransaction();
    s.getDatabase("shell").tx.insertOne({ _id: 1 });
    same(1, db.tx.countDocuments(), "outside");
    s.abortTransaction();
    s.withTransaction(() => s.getDatabase("shell").tx.insertOne({ _id: 2 }));
    s.endSession();
    same([0, 2], db.tx.find().sort({ _id: 1 }).toArray().map((d) => d._id), "afterwards");
  },
  "a change stream": () => {
    const cs = db.watched.watch();
    db.watched.insertOne({ _id: 1 });
    let event = null;
    for (let i = 0; i < 50 && event === null; i++) event = cs.tryNext();
    same(["insert", { _id: 1 }], [event.operationType, event.fullDocument], "event");
    cs.close();
  },
  "an error of a server": () => {
    const e = fails(() => db.e.find({ $where: 1, $nonsense: 2 }).toArray(), "find");
    same(true, typeof e.code === "number", "it has a code");
    same(9, fails(() => db.e.updateOne({}, { $nonsense: { a: 1 } }), "update").code, "code");
  },
  "rs.status": () => same(["PRIMARY", 1], [rs.status().members[0].stateStr, rs.status().ok], "state"),
  "rs.conf": () => same("rs0", rs.conf()._id, "name"),
  "rs.hello": () => same(true, rs.hello().isWritablePrimary, "primary"),
  "rs.printReplicationInfo": () => same(true, db.getReplicationInfo().logSizeMB > 0, "size of the log"),
  "db.stats": () => same("shell", db.stats().db, "name"),
  "stats of a collection": () => {
    db.st.insertOne({ n: 1 });
    same([1, false], [db.st.stats().count, db.st.stats().capped], "stats");
    same(true, db.st.dataSize() > 0 && db.st.storageSize() >= 0 && db.st.totalIndexSize() >= 0 && db.st.totalSize() >= 0, "sizes");
  },
  "validate": () => {
    db.va.insertOne({});
    same(true, db.va.validate().valid, "valid");
  },
  "db.serverStatus": () => same(true, db.serverStatus().uptime >= 0, "uptime"),
  "db.hostInfo": () => same(1, db.hostInfo().ok, "ok"),
  "db.serverBuildInfo": () => same(db.version(), db.serverBuildInfo().version, "version"),
  "db.currentOp": () => same(1, db.currentOp().ok, "ok"),
  "db.getProfilingStatus": () => same(0, db.getProfilingStatus().was, "level"),
  "connectionStatus": () => same(1, db.runCommand({ connectionStatus: 1 }).ok, "ok"),
  "listCommands": () => same(true, "find" in db.runCommand({ listCommands: 1 }).commands, "find is there"),
  "ping": () => same(1, db.adminCommand({ ping: 1 }).ok, "ok"),
  "a command that is none": () => same(59, fails(() => db.runCommand({ makeCoffee: 1 }), "run").code, "code"),
  "explain": () => same(true, "queryPlanner" in db.w.find({ n: 1 }).explain(), "a plan"),
  "mapReduce": () => same(1, db.runCommand({ mapReduce: "w", map: "function () {}", reduce: "function () {}", out: { inline: 1 } }).ok, "ok"),
  "users": () => db.createUser({ user: "u", pwd: "p", roles: [] }),
  "killOp": () => same(1, db.killOp(1).ok, "ok"),
};

// Those of every language.
const text = readFileSync("../mongodb.json", "utf8");
let n = 0;
for (const { name } of JSON.parse(text)) {
  scenarios[name] = () => {
    const [c, other] = [db.getCollection(`t${++n}`), db.getCollection(`o${n}`)];
    const s = EJSON.parse(text.replaceAll("OTHER", other.getName())).find((x) => x.name === name);
    c.insertMany(s.docs);
    if (s.other) other.insertMany(s.other);
    const run = () => {
      if (s.aggregate) return c.aggregate(s.aggregate, { collation: s.collation }).toArray();
      if (s.find) {
        let cursor = c.find(s.find, s.projection ?? {}).sort(s.sort ?? {});
        if (s.collation) cursor = cursor.collation(s.collation);
        return cursor.toArray();
      }
      c.updateOne({}, s.update);
      return c.find().toArray();
    };
    if (s.error) {
      same(s.error, fails(run, name).code, "code");
      return;
    }
    same(s.want, run(), "result");
    if (s.after) same(s.after, other.find().sort({ _id: 1 }).toArray(), "the other collection");
  };
}

for (const [name, scenario] of Object.entries(scenarios)) {
  let outcome = "passed";
  let detail = "";
  try {
    scenario();
  } catch (e) {
    detail = `${e.name}${e.code ? ` (${e.code})` : ""}: ${e.message}`.split("\n")[0];
    outcome = !(e instanceof Mismatch) && refusal.test(`${e.codeName} ${detail}`) ? "refused" : "wrong";
  }
  print(JSON.stringify({ area: "mongosh", name, outcome, detail }));
}
