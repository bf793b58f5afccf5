package blob_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	azb "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
)

// The test covers signatures of a blob and of a container, with the headers of the answer that they
// may set, and what they do not permit.
func TestASharedAccessSignaturePermitsReading(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ctx, transport := t.Context(), blob.New(blob.Options{}).Transport()
		client := inMemory(t, transport)
		_, err := client.CreateContainer(ctx, "photos", nil)
		require.NoError(t, err)
		_, err = client.UploadBuffer(ctx, "photos", "a folder/übung.txt", []byte("hello"), nil)
		require.NoError(t, err)
		_, err = client.UploadBuffer(ctx, "photos", "other", []byte("other"), nil)
		require.NoError(t, err)
		key, err := azblob.NewSharedKeyCredential(blob.DefaultAccount, blob.DefaultKey)
		require.NoError(t, err)
		signed := func(v sas.BlobSignatureValues) func(name string) *blockblob.Client {
			v.ContainerName = "photos"
			if v.ExpiryTime.IsZero() {
				v.ExpiryTime = time.Now().Add(time.Hour)
			}
			q, err := v.SignWithSharedKey(key)
			require.NoError(t, err)
			return func(name string) *blockblob.Client {
				url := client.ServiceClient().NewContainerClient("photos").NewBlockBlobClient(name).URL() + "?" + q.Encode()
				c, err := blockblob.NewClientWithNoCredential(url, &blockblob.ClientOptions{ClientOptions: azcore.ClientOptions{
					Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1},
				}})
				require.NoError(t, err)
				return c
			}
		}
		const name = "a folder/übung.txt"
		read := sas.BlobPermissions{Read: true}
		ofBlob := signed(sas.BlobSignatureValues{BlobName: name, Permissions: read.String(), ContentType: "text/special", ContentDisposition: "attachment"})
		ofContainer := signed(sas.BlobSignatureValues{Permissions: (&sas.ContainerPermissions{Read: true, List: true}).String()})
		for _, by := range []func(string) *blockblob.Client{ofBlob, ofContainer} {
			got, err := by(name).DownloadStream(ctx, nil)
			require.NoError(t, err)
			text, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.Equal(t, "hello", string(text))
			_, err = by(name).GetProperties(ctx, nil)
			require.NoError(t, err)
			_, err = by(name).GetBlockList(ctx, blockblob.BlockListTypeAll, nil)
			require.NoError(t, err)
		}
		got, err := ofBlob(name).DownloadStream(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"text/special", "attachment"}, []string{*got.ContentType, *got.ContentDisposition})
		_, err = ofContainer("other").DownloadStream(ctx, nil)
		require.NoError(t, err)

		is := func(status int, code bloberror.Code, text string, err error) {
			t.Helper()
			e, ok := errors.AsType[*azcore.ResponseError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, status, e.StatusCode, "%v", err)
			require.Equal(t, string(code), e.ErrorCode)
			require.Contains(t, err.Error(), text)
		}
		_, err = ofBlob("other").DownloadStream(ctx, nil)
		is(http.StatusForbidden, bloberror.AuthenticationFailed, "Signature did not match", err)
		writing := signed(sas.BlobSignatureValues{BlobName: name, Permissions: (&sas.BlobPermissions{Write: true}).String()})
		_, err = writing(name).DownloadStream(ctx, nil)
		is(http.StatusForbidden, bloberror.AuthorizationPermissionMismatch, "using this permission", err)
		_, err = writing(name).UploadBuffer(ctx, []byte("x"), nil)
		is(http.StatusNotImplemented, "NotImplemented", "does not support Put Blob by a shared access signature", err)
		_, err = signed(sas.BlobSignatureValues{BlobName: name, Permissions: read.String(), StartTime: time.Now().Add(time.Minute)})(name).DownloadStream(ctx, nil)
		is(http.StatusForbidden, bloberror.AuthenticationFailed, "it begins at", err)
		_, err = signed(sas.BlobSignatureValues{Identifier: "policy"})(name).DownloadStream(ctx, nil)
		is(http.StatusNotImplemented, "NotImplemented", "does not support stored access policies", err)
		time.Sleep(61 * time.Minute)
		_, err = ofBlob(name).DownloadStream(ctx, nil)
		is(http.StatusForbidden, bloberror.AuthenticationFailed, "it ends at", err)

		account, err := client.ServiceClient().GetSASURL(sas.AccountResourceTypes{Object: true}, sas.AccountPermissions{Read: true}, time.Now().Add(time.Hour), nil)
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(account, "?", "photos/other?", 1), http.NoBody)
		require.NoError(t, err)
		answer, err := transport.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusNotImplemented, answer.StatusCode)
	})
}

// TestUnsupportedIsNamed covers operations, headers and parameters that the server lacks: the
// answer is 501, which clients do not retry.
func TestUnsupportedIsNamed(t *testing.T) {
	ctx := t.Context()
	client := inMemory(t, blob.New(blob.Options{}).Transport())
	_, err := client.CreateContainer(ctx, "photos", nil)
	require.NoError(t, err)
	_, err = client.UploadBuffer(ctx, "photos", "a", []byte("hello"), nil)
	require.NoError(t, err)
	container := client.ServiceClient().NewContainerClient("photos")
	b, tier := container.NewBlobClient("a"), azb.AccessTierCool
	put := func(o *azblob.UploadBufferOptions) error {
		_, err := client.UploadBuffer(ctx, "photos", "b", []byte("x"), o)
		return err
	}
	for name, do := range map[string]func() error{
		"Snapshot Blob":               func() error { _, err := b.CreateSnapshot(ctx, nil); return err },
		"Set Blob Tier":               func() error { _, err := b.SetTier(ctx, tier, nil); return err },
		"Set Blob Tags":               func() error { _, err := b.SetTags(ctx, map[string]string{"a": "b"}, nil); return err },
		"Get Blob Tags":               func() error { _, err := b.GetTags(ctx, nil); return err },
		"Undelete Blob":               func() error { _, err := b.Undelete(ctx, nil); return err },
		"Copy Blob":                   func() error { _, err := b.StartCopyFromURL(ctx, b.URL(), nil); return err },
		"Get Account Information":     func() error { _, err := client.ServiceClient().GetAccountInfo(ctx, nil); return err },
		"Get Blob Service Properties": func() error { _, err := client.ServiceClient().GetProperties(ctx, nil); return err },
		"Get Container ACL":           func() error { _, err := container.GetAccessPolicy(ctx, nil); return err },
		"Put Blob of an AppendBlob":   func() error { _, err := container.NewAppendBlobClient("b").Create(ctx, nil); return err },
		"the header x-ms-tags of Put Blob": func() error {
			return put(&azblob.UploadBufferOptions{Tags: map[string]string{"a": "b"}})
		},
		"the header x-ms-access-tier of Put Blob": func() error { return put(&azblob.UploadBufferOptions{AccessTier: &tier}) },
		"Lease Container": func() error {
			l, err := lease.NewContainerClient(container, nil)
			require.NoError(t, err)
			_, err = l.AcquireLease(ctx, 15, nil)
			return err
		},
		"the query parameter versionid of Get Blob": func() error {
			v, err := b.WithVersionID("2026-01-01T00:00:00.0000000Z")
			require.NoError(t, err)
			_, err = v.GetProperties(ctx, nil)
			require.Error(t, err) // HEAD: the name is lost, the refusal is not
			_, err = v.DownloadStream(ctx, nil)
			return err
		},
	} {
		err := do()
		e, ok := errors.AsType[*azcore.ResponseError](err)
		require.True(t, ok, "%s: %v", name, err)
		require.Equal(t, http.StatusNotImplemented, e.StatusCode, "%s: %v", name, err)
		require.Contains(t, err.Error(), "The embedded Blob Storage does not support "+name+".")
	}
}

// The service's answers to what is too long, empty, or has a name of its own.
func TestTheBoundsOfNamesMetadataAndBlocks(t *testing.T) {
	ctx := t.Context()
	client := inMemory(t, blob.New(blob.Options{}).Transport())
	_, err := client.CreateContainer(ctx, "ab", nil)
	require.True(t, bloberror.HasCode(err, bloberror.OutOfRangeInput), "%v", err)
	_, err = client.CreateContainer(ctx, "$root", nil)
	require.NoError(t, err)
	_, err = client.CreateContainer(ctx, "photos", nil)
	require.NoError(t, err)
	long := strings.Repeat("x", 8<<10)
	_, err = client.UploadBuffer(ctx, "photos", "a", []byte("x"), &azblob.UploadBufferOptions{Metadata: map[string]*string{"long": &long}})
	require.True(t, bloberror.HasCode(err, bloberror.MetadataTooLarge), "%v", err)
	_, err = client.UploadBuffer(ctx, "photos", "a", []byte("x"), nil)
	require.NoError(t, err)
	c := client.ServiceClient().NewContainerClient("photos")
	_, err = c.NewBlockBlobClient("a").StageBlock(ctx, "YQ==", readSeekNopCloser{strings.NewReader("")}, nil)
	require.True(t, bloberror.HasCode(err, bloberror.InvalidHeaderValue), "%v", err)

	p, err := c.NewBlobClient("a").GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "Hot", *p.AccessTier)
	require.True(t, *p.AccessTierInferred)
	pager := c.NewListBlobsFlatPager(nil)
	page, err := pager.NextPage(ctx)
	require.NoError(t, err)
	require.Equal(t, azb.AccessTierHot, *page.Segment.BlobItems[0].Properties.AccessTier)
	of, err := c.GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "$account-encryption-key", *of.DefaultEncryptionScope)
}

type readSeekNopCloser struct{ io.ReadSeeker }

func (readSeekNopCloser) Close() error { return nil }
