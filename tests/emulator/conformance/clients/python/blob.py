"""Blob storage with azure-storage-blob."""

import base64
import os
from datetime import datetime, timedelta, timezone

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, BlobLeaseClient, BlobSasPermissions, BlobServiceClient, ContentSettings, generate_blob_sas

from report import fails, run, same

service = BlobServiceClient.from_connection_string(os.environ["BLOB_CONNECTION_STRING"], retry_total=0)
container = service.get_container_client("python")


def put(name, content, **options):
    blob = container.get_blob_client(name)
    blob.upload_blob(content, **{"overwrite": True, **options})
    return blob


def a_container():
    """a container"""
    container.create_container()
    same(True, container.exists(), "exists")
    same("ContainerAlreadyExists", fails(ResourceExistsError, container.create_container, "create").error_code, "error")


def put_and_get():
    """put and get"""
    blob = put("a", b"hello", content_settings=ContentSettings(content_type="text/plain"))
    same(b"hello", blob.download_blob().readall(), "content")
    same(b"ell", blob.download_blob(offset=1, length=3).readall(), "a part")
    p = blob.get_blob_properties()
    same((5, "text/plain", "BlockBlob"), (p.size, p.content_settings.content_type, p.blob_type), "properties")
    same("BlobNotFound", fails(ResourceNotFoundError, container.get_blob_client("none").download_blob, "get").error_code, "error")


def metadata():
    """metadata"""
    blob = put("m", b"", metadata={"one": "1", "two": "2"})
    same({"one": "1", "two": "2"}, blob.get_blob_properties().metadata, "metadata")
    blob.set_blob_metadata({"three": "3"})
    same({"three": "3"}, blob.get_blob_properties().metadata, "metadata after")
    e = fails(HttpResponseError, lambda: blob.set_blob_metadata({"not-a-name": "1"}), "set")
    same((400, "InvalidMetadata"), (e.status_code, e.error_code), "error")


def conditions():
    """conditions"""
    blob = put("c", b"1")
    old = {"etag": blob.get_blob_properties().etag, "match_condition": MatchConditions.IfNotModified}
    put("c", b"2", **old)
    same("ConditionNotMet", fails(ResourceModifiedError, lambda: put("c", b"3", **old), "put").error_code, "if it is the same")
    same("BlobAlreadyExists", fails(ResourceExistsError, lambda: put("c", b"3", overwrite=False), "put").error_code, "if there is none")
    same(b"2", blob.download_blob().readall(), "content")


def lease():
    """a lease"""
    blob = put("l", b"1")
    held = blob.acquire_lease(15)
    same("LeaseAlreadyPresent", fails(HttpResponseError, lambda: blob.acquire_lease(15), "acquire").error_code, "error")
    same("LeaseIdMissing", fails(HttpResponseError, lambda: put("l", b"2"), "put without the lease").error_code, "error")
    put("l", b"2", lease=held)
    held.renew()
    same("leased", blob.get_blob_properties().lease.state, "state")
    held.release()
    put("l", b"3")
    BlobLeaseClient(blob).acquire(-1)
    BlobLeaseClient(blob).break_lease(0)
    same("broken", blob.get_blob_properties().lease.state, "state")


def listing():
    """list"""
    for name in ("list/1", "list/2", "list/deep/3"):
        put(name, b"")
    same(["list/1", "list/2", "list/deep/3"], [b.name for b in container.list_blobs(name_starts_with="list/", results_per_page=1)], "flat")
    same(["list/1", "list/2", "list/deep/"], sorted(b.name for b in container.walk_blobs(name_starts_with="list/", delimiter="/")), "by hierarchy")


def blocks():
    """blocks"""
    blob = container.get_blob_client("blocks")
    names = [base64.b64encode(x).decode() for x in (b"1", b"2")]
    blob.stage_block(names[0], b"ab")
    blob.stage_block(names[1], b"cd")
    blob.commit_block_list([BlobBlock(n) for n in names])
    same(b"abcd", blob.download_blob().readall(), "content")


def a_shared_access_signature():
    """a shared access signature"""
    blob = put("s", b"shared")
    sas = generate_blob_sas(
        account_name=service.account_name,
        container_name="python",
        blob_name="s",
        account_key=service.credential.account_key,
        permission=BlobSasPermissions(read=True),
        expiry=datetime.now(timezone.utc) + timedelta(minutes=1),
    )
    reader = BlobClient.from_blob_url(blob.url, credential=sas)
    same(b"shared", reader.download_blob().readall(), "content")
    e = fails(HttpResponseError, reader.delete_blob, "delete")
    same((501, "NotImplemented"), (e.status_code, e.error_code), "error")


def what_is_not_there():
    """what is not there"""
    blob = put("n", b"")
    for act in (blob.create_snapshot, lambda: blob.set_blob_tags({"a": "b"}), lambda: blob.set_standard_blob_tier("Cool"), lambda: put("n", b"", tags={"a": "b"})):
        e = fails(HttpResponseError, act, "act")
        same((501, "NotImplemented"), (e.status_code, e.error_code), "error")


def delete():
    """delete"""
    blob = put("d", b"1")
    blob.delete_blob()
    same(False, blob.exists(), "exists")
    fails(ResourceNotFoundError, blob.delete_blob, "delete it twice")


run("blob", [a_container, put_and_get, metadata, conditions, lease, listing, blocks, a_shared_access_signature, what_is_not_there, delete])
