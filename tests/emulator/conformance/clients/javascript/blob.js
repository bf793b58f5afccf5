"use strict";

// Blob storage with @azure/storage-blob.

const { BlobClient, BlobSASPermissions, BlobServiceClient } = require("@azure/storage-blob");
const { same, fails, run } = require("./report");

const service = BlobServiceClient.fromConnectionString(process.env.BLOB_CONNECTION_STRING, { retryOptions: { maxTries: 1 } });
const container = service.getContainerClient("javascript");

const codes = (e) => [e.statusCode, e.code];

async function put(name, text, options) {
  const blob = container.getBlockBlobClient(name);
  await blob.upload(text, Buffer.byteLength(text), options);
  return blob;
}

const scenarios = {
  "a container": async () => {
    same(true, (await container.createIfNotExists()).succeeded, "created");
    same(false, (await container.createIfNotExists()).succeeded, "created twice");
    same(true, await container.exists(), "exists");
    same([409, "ContainerAlreadyExists"], codes(await fails(() => container.create(), "create")), "error");
  },
  "put and get": async () => {
    const blob = await put("a", "hello", { blobHTTPHeaders: { blobContentType: "text/plain" } });
    same("hello", (await blob.downloadToBuffer()).toString(), "content");
    same("ell", (await blob.downloadToBuffer(1, 3)).toString(), "a part");
    const p = await blob.getProperties();
    same([5, "text/plain", "BlockBlob"], [p.contentLength, p.contentType, p.blobType], "properties");
    same([404, "BlobNotFound"], codes(await fails(() => container.getBlobClient("none").download(), "get")), "error");
  },
  "metadata": async () => {
    const blob = await put("m", "", { metadata: { one: "1", two: "2" } });
    same({ one: "1", two: "2" }, (await blob.getProperties()).metadata, "metadata");
    await blob.setMetadata({ three: "3" });
    same({ three: "3" }, (await blob.getProperties()).metadata, "metadata after");
    same([400, "InvalidMetadata"], codes(await fails(() => blob.setMetadata({ "not-a-name": "1" }), "set")), "error");
  },
  "conditions": async () => {
    const blob = await put("c", "1");
    const { etag } = await blob.getProperties();
    await put("c", "2", { conditions: { ifMatch: etag } });
    same([412, "ConditionNotMet"], codes(await fails(() => put("c", "3", { conditions: { ifMatch: etag } }), "put")), "ifMatch");
    same([409, "BlobAlreadyExists"], codes(await fails(() => put("c", "3", { conditions: { ifNoneMatch: "*" } }), "put")), "ifNoneMatch");
    same("2", (await blob.downloadToBuffer()).toString(), "content");
  },
  "a lease": async () => {
    const blob = await put("l", "1");
    const lease = blob.getBlobLeaseClient();
    const { leaseId } = await lease.acquireLease(15);
    same([409, "LeaseAlreadyPresent"], codes(await fails(() => blob.getBlobLeaseClient().acquireLease(15), "acquire")), "error");
    same([412, "LeaseIdMissing"], codes(await fails(() => put("l", "2"), "put without the lease")), "error");
    await put("l", "2", { conditions: { leaseId } });
    await lease.renewLease();
    same("leased", (await blob.getProperties()).leaseState, "state");
    await lease.releaseLease();
    await put("l", "3");
    const other = blob.getBlobLeaseClient();
    await other.acquireLease(-1);
    await other.breakLease(0);
    same("broken", (await blob.getProperties()).leaseState, "state");
  },
  "list": async () => {
    for (const name of ["list/1", "list/2", "list/deep/3"]) await put(name, name);
    const names = [];
    for await (const b of container.listBlobsFlat({ prefix: "list/" })) names.push(b.name);
    same(["list/1", "list/2", "list/deep/3"], names, "flat");
    const parts = [];
    for await (const b of container.listBlobsByHierarchy("/", { prefix: "list/" })) parts.push(`${b.kind} ${b.name}`);
    same(["blob list/1", "blob list/2", "prefix list/deep/"], parts.sort(), "by hierarchy");
    let pages = 0;
    for await (const page of container.listBlobsFlat({ prefix: "list/" }).byPage({ maxPageSize: 1 })) pages += page.segment.blobItems.length;
    same(3, pages, "in pages");
  },
  "blocks": async () => {
    const blob = container.getBlockBlobClient("blocks");
    const ids = ["1", "2"].map((x) => Buffer.from(x).toString("base64"));
    await blob.stageBlock(ids[0], "ab", 2);
    await blob.stageBlock(ids[1], "cd", 2);
    await blob.commitBlockList(ids);
    same("abcd", (await blob.downloadToBuffer()).toString(), "content");
    same(2, (await blob.getBlockList("committed")).committedBlocks.length, "blocks");
  },
  "delete": async () => {
    const blob = await put("d", "1");
    await blob.delete();
    same(false, await blob.exists(), "exists");
    same(false, (await blob.deleteIfExists()).succeeded, "deleted twice");
  },
  "a shared access signature": async () => {
    const blob = await put("s", "shared");
    const url = await blob.generateSasUrl({ permissions: BlobSASPermissions.parse("r"), expiresOn: new Date(Date.now() + 60000), contentType: "text/special" });
    const reader = new BlobClient(url, undefined, { retryOptions: { maxTries: 1 } });
    same("shared", (await reader.downloadToBuffer()).toString(), "content");
    same("text/special", (await reader.download()).contentType, "content type");
    same([501, "NotImplemented"], codes(await fails(() => reader.delete(), "delete")), "error");
    same("shared", await (await fetch(url)).text(), "without a client");
  },
  "what is not there": async () => {
    const blob = await put("n", "");
    for (const act of [() => blob.createSnapshot(), () => blob.setTags({ a: "b" }), () => blob.setAccessTier("Cool"), () => put("n", "", { tags: { a: "b" } })]) {
      same([501, "NotImplemented"], codes(await fails(act, "act")), "error");
    }
  },
  "an error's text": async () => {
    const e = await fails(() => container.getBlobClient("none").delete(), "delete");
    same(false, /&#x/.test(e.message), "entities in the text");
  },
};

run("blob", scenarios);
