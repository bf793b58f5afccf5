import com.azure.core.util.BinaryData;
import com.azure.storage.blob.BlobClient;
import com.azure.storage.blob.BlobClientBuilder;
import com.azure.storage.blob.BlobContainerClient;
import com.azure.storage.blob.BlobServiceClient;
import com.azure.storage.blob.BlobServiceClientBuilder;
import com.azure.storage.blob.models.BlobItem;
import com.azure.storage.blob.models.BlobStorageException;
import com.azure.storage.blob.specialized.BlobLeaseClient;
import com.azure.storage.blob.specialized.BlobLeaseClientBuilder;
import com.azure.storage.blob.sas.BlobSasPermission;
import com.azure.storage.blob.sas.BlobServiceSasSignatureValues;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Blob storage with azure-storage-blob. */
final class Blob {
  public static void main(String[] args) {
    BlobServiceClient service = new BlobServiceClientBuilder().connectionString(System.getenv("BLOB_CONNECTION_STRING")).buildClient();
    BlobContainerClient container = service.getBlobContainerClient("java");
    Report r = new Report("blob");
    r.add("make a container", () -> {
      Report.same(true, container.createIfNotExists(), "made");
      Report.same(false, container.createIfNotExists(), "made again");
    });
    r.add("write and read", () -> {
      BlobClient b = container.getBlobClient("a");
      b.upload(BinaryData.fromString("text"), true);
      Report.same("text", b.downloadContent().toString(), "content");
      Report.same(4L, b.getProperties().getBlobSize(), "size");
    });
    r.add("write only once", () -> {
      BlobClient b = container.getBlobClient("once");
      b.upload(BinaryData.fromString("1"));
      Report.same(409, Report.fails(BlobStorageException.class, () -> b.upload(BinaryData.fromString("2")), "upload").getStatusCode(), "status");
    });
    r.add("metadata", () -> {
      BlobClient b = container.getBlobClient("a");
      b.setMetadata(Map.of("k", "v"));
      Report.same(Map.of("k", "v"), b.getProperties().getMetadata(), "metadata");
    });
    r.add("list", () -> {
      List<String> names = new ArrayList<>();
      for (BlobItem item : container.listBlobs()) {
        names.add(item.getName());
      }
      Report.same(List.of("a", "once"), names, "names");
    });
    r.add("a lease has one holder", () -> {
      BlobClient b = container.getBlobClient("a");
      BlobLeaseClient one = new BlobLeaseClientBuilder().blobClient(b).buildClient();
      one.acquireLease(15);
      BlobLeaseClient two = new BlobLeaseClientBuilder().blobClient(b).buildClient();
      Report.same(409, Report.fails(BlobStorageException.class, () -> two.acquireLease(15), "acquire").getStatusCode(), "status");
      Report.same(412, Report.fails(BlobStorageException.class, () -> b.upload(BinaryData.fromString("x"), true), "write").getStatusCode(), "status");
      one.renewLease();
      one.releaseLease();
    });
    r.add("a shared access signature", () -> {
      BlobClient b = container.getBlobClient("a");
      String sas = b.generateSas(new BlobServiceSasSignatureValues(OffsetDateTime.now().plusMinutes(1), new BlobSasPermission().setReadPermission(true)));
      BlobClient reader = new BlobClientBuilder().endpoint(b.getBlobUrl()).sasToken(sas).buildClient();
      Report.same("text", reader.downloadContent().toString(), "content");
      Report.same(501, Report.fails(BlobStorageException.class, () -> reader.delete(), "delete").getStatusCode(), "status");
    });
    r.add("delete", () -> {
      container.getBlobClient("a").delete();
      Report.same(404, Report.fails(BlobStorageException.class, () -> container.getBlobClient("a").downloadContent(), "read").getStatusCode(), "status");
    });
    r.run();
  }
}
