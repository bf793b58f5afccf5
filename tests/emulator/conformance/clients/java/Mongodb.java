import com.mongodb.ErrorCategory;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoWriteException;
import com.mongodb.ReadPreference;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.ClientSession;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CollationStrength;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.InsertManyOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.client.result.UpdateResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.BsonArray;
import org.bson.Document;

/** MongoDB with its Java driver. */
final class Mongodb {
  static MongoClient client;
  static MongoDatabase db;
  static int collections;

  static MongoCollection<Document> fresh() {
    return db.getCollection("c" + ++collections);
  }

  static MongoCollection<Document> filled(String... docs) {
    MongoCollection<Document> c = fresh();
    for (String d : docs) {
      c.insertOne(Document.parse(d));
    }
    return c;
  }

  static List<String> json(Iterable<Document> docs) {
    List<String> all = new ArrayList<>();
    docs.forEach(d -> all.add(d.toJson()));
    return all;
  }

  static List<String> parsed(String... docs) {
    List<String> all = new ArrayList<>();
    for (String d : docs) {
      all.add(Document.parse(d).toJson());
    }
    return all;
  }

  static void table(Report r) throws Exception {
    String text = Files.readString(Path.of(System.getenv("SCENARIOS")));
    List<Document> all = new Document("all", BsonArray.parse(text)).toBsonDocument().getArray("all").stream().map(v -> Document.parse(v.asDocument().toJson())).toList();
    for (Document entry : all) {
      r.add(entry.getString("name"), () -> one(entry));
    }
  }

  static void one(Document entry) {
    MongoCollection<Document> c = fresh();
    MongoCollection<Document> other = fresh();
    Document s = Document.parse(entry.toJson().replace("OTHER", other.getNamespace().getCollectionName()));
    c.insertMany(s.getList("docs", Document.class));
    if (s.containsKey("other")) {
      other.insertMany(s.getList("other", Document.class));
    }
    Report.Scenario[] got = new Report.Scenario[1];
    List<Document> result = new ArrayList<>();
    got[0] = () -> {
      if (s.containsKey("aggregate")) {
        if (s.containsKey("after")) { // the driver would read what was written
          c.aggregate(s.getList("aggregate", Document.class)).toCollection();
        } else {
          c.aggregate(s.getList("aggregate", Document.class)).into(result);
        }
        return;
      }
      if (s.containsKey("find")) {
        FindIterable<Document> found = c.find(s.get("find", Document.class)).projection(s.get("projection", Document.class)).sort(s.get("sort", Document.class));
        if (s.containsKey("collation")) {
          found.collation(Collation.builder().locale("en").collationStrength(CollationStrength.SECONDARY).build());
        }
        found.into(result);
        return;
      }
      if (s.get("update") instanceof List) {
        c.updateOne(new Document(), s.getList("update", Document.class));
      } else {
        c.updateOne(new Document(), s.get("update", Document.class));
      }
      c.find().into(result);
    };
    if (s.containsKey("error")) {
      Report.same(s.getInteger("error"), Report.fails(MongoException.class, got[0], s.getString("name")).getCode(), "code");
      return;
    }
    try {
      got[0].run();
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
    Report.same(json(s.getList("want", Document.class)), json(result), "result");
    if (s.containsKey("after")) {
      Report.same(json(s.getList("after", Document.class)), json(other.find().sort(Sorts.ascending("_id"))), "the other collection");
    }
  }

  public static void main(String[] args) throws Exception {
    client = MongoClients.create(System.getenv("MONGODB_URI"));
    db = client.getDatabase("java");
    Report r = new Report("mongodb");
    r.add("insert and find", () -> {
      MongoCollection<Document> c = filled("{_id: 1, text: 'x', n: {$numberLong: '1099511627776'}, price: {$numberDecimal: '1.10'}, list: [1, {a: null}]}");
      Report.same(Document.parse("{_id: 1, text: 'x', n: {$numberLong: '1099511627776'}, price: {$numberDecimal: '1.10'}, list: [1, {a: null}]}"), c.find(Filters.eq("list.a", null)).first(), "document");
    });
    r.add("find sorted, skipped, limited, projected", () -> {
      MongoCollection<Document> c = filled("{_id: 1, a: 3}", "{_id: 2, a: 1}", "{_id: 3, a: 2}", "{_id: 4, a: 1}");
      Report.same(parsed("{_id: 4}", "{_id: 3}"), json(c.find().projection(new Document("_id", 1)).sort(Sorts.ascending("a", "_id")).skip(1).limit(2)), "found");
      Report.same(4L, c.countDocuments(), "count");
      Report.same(List.of(1, 2, 3), c.distinct("a", Integer.class).into(new ArrayList<>()).stream().sorted().toList(), "distinct");
    });
    r.add("a cursor of many batches", () -> {
      List<Document> docs = new ArrayList<>();
      for (int i = 0; i < 250; i++) {
        docs.add(new Document("_id", i));
      }
      MongoCollection<Document> c = fresh();
      c.insertMany(docs);
      Report.same(docs, c.find().batchSize(20).sort(Sorts.ascending("_id")).into(new ArrayList<>()), "documents");
    });
    r.add("update", () -> {
      MongoCollection<Document> c = filled("{_id: 1, n: 1, tags: ['a'], rows: [{k: 1, v: 1}, {k: 2, v: 1}]}");
      UpdateResult u = c.updateOne(new Document(), Updates.combine(Updates.inc("n", 2), Updates.inc("rows.$[r].v", 10), Updates.push("tags", "b"), Updates.set("deep.x", 1)),
          new UpdateOptions().arrayFilters(List.of(Filters.eq("r.k", 2))));
      Report.same(1L, u.getModifiedCount(), "modified");
      Report.same(parsed("{_id: 1, n: 3, tags: ['a', 'b'], rows: [{k: 1, v: 1}, {k: 2, v: 11}], deep: {x: 1}}"), json(c.find()), "document");
    });
    r.add("upsert and replace", () -> {
      MongoCollection<Document> c = fresh();
      Report.same("k", c.updateOne(Filters.eq("k"), Updates.setOnInsert("n", 1), new UpdateOptions().upsert(true)).getUpsertedId().asString().getValue(), "upserted");
      c.replaceOne(Filters.eq("k"), new Document("n", 2), new ReplaceOptions().upsert(true));
      Report.same(parsed("{_id: 'k', n: 2}"), json(c.find()), "documents");
    });
    r.add("find one and modify", () -> {
      MongoCollection<Document> c = filled("{_id: 1, n: 1}");
      Report.same(1, c.findOneAndUpdate(Filters.eq(1), Updates.inc("n", 1)).getInteger("n"), "before");
      Report.same(3, c.findOneAndUpdate(Filters.eq(1), Updates.inc("n", 1), new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER)).getInteger("n"), "after");
      Report.same(3, c.findOneAndDelete(Filters.eq(1)).getInteger("n"), "deleted");
      Report.same(null, c.findOneAndDelete(Filters.eq(1)), "nothing");
    });
    r.add("bulk write", () -> {
      MongoCollection<Document> c = fresh();
      var w = c.bulkWrite(List.of(new InsertOneModel<>(Document.parse("{_id: 1, n: 1}")), new InsertOneModel<>(Document.parse("{_id: 2}")),
          new UpdateOneModel<>(Filters.eq(1), Updates.inc("n", 1)), new DeleteOneModel<>(Filters.eq(2)),
          new ReplaceOneModel<>(Filters.eq(3), new Document("n", 9), new ReplaceOptions().upsert(true))));
      Report.same(List.of(2, 1, 1, 1), List.of(w.getInsertedCount(), w.getModifiedCount(), w.getDeletedCount(), w.getUpserts().size()), "counts");
      Report.same(parsed("{_id: 1, n: 2}", "{_id: 3, n: 9}"), json(c.find().sort(Sorts.ascending("_id"))), "documents");
    });
    r.add("a duplicate key", () -> {
      MongoCollection<Document> c = filled("{_id: 1}");
      Report.same(ErrorCategory.DUPLICATE_KEY, Report.fails(MongoWriteException.class, () -> c.insertOne(Document.parse("{_id: 1}")), "insert").getError().getCategory(), "category");
      MongoBulkWriteException e = Report.fails(MongoBulkWriteException.class,
          () -> c.insertMany(List.of(new Document("_id", 0), new Document("_id", 1), new Document("_id", 2)), new InsertManyOptions().ordered(false)), "insert");
      Report.same(2, e.getWriteResult().getInsertedCount(), "inserted");
    });
    r.add("indexes", () -> {
      MongoCollection<Document> c = filled("{_id: 1, mail: 'a'}");
      Report.same("mail_1", c.createIndex(Indexes.ascending("mail"), new IndexOptions().unique(true)), "name");
      c.createIndex(Indexes.descending("t"), new IndexOptions().expireAfter(1L, TimeUnit.HOURS));
      Report.same(3, c.listIndexes().into(new ArrayList<>()).size(), "indexes");
      Report.fails(MongoWriteException.class, () -> c.insertOne(Document.parse("{mail: 'a'}")), "insert");
      c.dropIndex("t_-1");
      Report.same(2, c.listIndexes().into(new ArrayList<>()).size(), "indexes left");
    });
    r.add("a unique index whatever the case", () -> {
      MongoCollection<Document> c = filled("{_id: 1, mail: 'A'}");
      c.createIndex(Indexes.ascending("mail"), new IndexOptions().unique(true).collation(Collation.builder().locale("en").collationStrength(CollationStrength.SECONDARY).build()));
      Report.fails(MongoWriteException.class, () -> c.insertOne(Document.parse("{mail: 'a'}")), "insert");
    });
    r.add("aggregate", () -> {
      MongoCollection<Document> c = filled("{_id: 1, k: 'a', n: 1}", "{_id: 2, k: 'b', n: 2}", "{_id: 3, k: 'a', n: 3}");
      Report.same(parsed("{_id: 'a', sum: 4}", "{_id: 'b', sum: 2}"),
          json(c.aggregate(List.of(Aggregates.group("$k", com.mongodb.client.model.Accumulators.sum("sum", "$n")), Aggregates.sort(Sorts.ascending("_id"))))), "groups");
    });
    r.add("a transaction commits and aborts", () -> {
      MongoCollection<Document> c = filled("{_id: 1, n: 0}");
      try (ClientSession s = client.startSession()) {
        s.withTransaction(() -> {
          c.updateOne(s, Filters.eq(1), Updates.inc("n", 1));
          c.insertOne(s, new Document("_id", 2));
          Report.same(1L, c.countDocuments(), "seen outside");
          return null;
        });
        Report.same(2L, c.countDocuments(), "seen after the commit");
        s.startTransaction();
        c.deleteMany(s, new Document());
        s.abortTransaction();
        Report.same(2L, c.countDocuments(), "seen after the abort");
      }
    });
    r.add("transactions conflict", () -> {
      MongoCollection<Document> c = filled("{_id: 1, n: 0}");
      try (ClientSession a = client.startSession(); ClientSession b = client.startSession()) {
        a.startTransaction();
        b.startTransaction();
        c.updateOne(a, Filters.eq(1), Updates.set("n", 1));
        MongoException e = Report.fails(MongoException.class, () -> c.updateOne(b, Filters.eq(1), Updates.set("n", 2)), "update");
        Report.same(List.of(112, true), List.of(e.getCode(), e.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL)), "error");
        a.commitTransaction();
      }
    });
    r.add("a change stream, and resume", () -> {
      MongoCollection<Document> c = filled("{_id: 0}");
      ChangeStreamDocument<Document> first;
      try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = c.watch().fullDocument(FullDocument.UPDATE_LOOKUP).cursor()) {
        c.insertOne(new Document("_id", 1).append("n", 1));
        c.updateOne(Filters.eq(1), Updates.set("n", 2));
        c.deleteOne(Filters.eq(1));
        first = stream.next();
        Report.same("{\"_id\": 1, \"n\": 1}", first.getFullDocument().toJson(), "document");
      }
      ChangeStreamIterable<Document> resumed = c.watch().resumeAfter(first.getResumeToken());
      try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = resumed.cursor()) {
        Report.same("{\"n\": 2}", stream.next().getUpdateDescription().getUpdatedFields().toJson(), "update");
        Report.same("delete", stream.next().getOperationTypeString(), "delete");
      }
    });
    r.add("a causally consistent session", () -> {
      MongoCollection<Document> c = fresh();
      try (ClientSession s = client.startSession()) {
        c.insertOne(s, new Document("_id", 1));
        Report.same(new Document("_id", 1), c.withReadPreference(ReadPreference.secondaryPreferred()).find(s).first(), "read back");
      }
    });
    r.add("a view", () -> {
      MongoCollection<Document> c = filled("{_id: 1, n: 1}", "{_id: 2, n: 2}");
      db.createView("v", c.getNamespace().getCollectionName(), List.of(Aggregates.match(Filters.gt("n", 1))));
      Report.same(parsed("{_id: 2, n: 2}"), json(db.getCollection("v").find()), "documents");
      Report.same(166, Report.fails(MongoException.class, () -> db.getCollection("v").insertOne(new Document()), "insert").getCode(), "code");
    });
    r.add("a capped collection", () -> {
      db.createCollection("capped", new CreateCollectionOptions().capped(true).sizeInBytes(4096).maxDocuments(2));
      MongoCollection<Document> c = db.getCollection("capped");
      c.insertMany(List.of(new Document("_id", 1), new Document("_id", 2), new Document("_id", 3)));
      Report.same(parsed("{_id: 2}", "{_id: 3}"), json(c.find()), "documents");
    });
    r.add("collections", () -> {
      MongoCollection<Document> c = filled("{_id: 1}");
      String name = c.getNamespace().getCollectionName();
      Report.same(true, db.listCollectionNames().into(new ArrayList<>()).contains(name), "listed");
      c.drop();
      Report.same(false, db.listCollectionNames().into(new ArrayList<>()).contains(name), "listed after");
    });
    r.add("administration", () -> {
      Report.same(1.0, db.runCommand(new Document("ping", 1)).getDouble("ok"), "ping");
      Report.same("rs0", db.runCommand(new Document("hello", 1)).getString("setName"), "replica set");
      Report.same(true, ((Number) db.runCommand(new Document("dbStats", 1)).get("collections")).intValue() > 0, "collections");
      Report.same(59, Report.fails(MongoCommandException.class, () -> db.runCommand(new Document("nosuch", 1)), "command").getCode(), "code");
    });
    table(r);
    r.run();
  }
}
