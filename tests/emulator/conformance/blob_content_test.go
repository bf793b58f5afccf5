package conformance

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"io"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"
)

func (e *blobEnv) sameETag() error {
	require.Equal(e.t, e.etag, e.props().ETag)
	return nil
}

// conditionCases returns the conditional headers: 304 and 412 for reads, 412 and
// 409 for writes.
func conditionCases() []blobCase {
	type cond = blob.ModifiedAccessConditions
	any, etag := to.Ptr(azcore.ETagAny), func(e *blobEnv) *azcore.ETag { return e.etag }
	other := func(*blobEnv) *azcore.ETag { return otherETag }
	wild := func(*blobEnv) *azcore.ETag { return any }
	at := func(d time.Duration) func(*blobEnv) *time.Time {
		return func(e *blobEnv) *time.Time { return new(e.modified.Add(d)) }
	}
	match := func(f func(*blobEnv) *azcore.ETag) func(*blobEnv) cond {
		return func(e *blobEnv) cond { return cond{IfMatch: f(e)} }
	}
	noneMatch := func(f func(*blobEnv) *azcore.ETag) func(*blobEnv) cond {
		return func(e *blobEnv) cond { return cond{IfNoneMatch: f(e)} }
	}
	since := func(f func(*blobEnv) *time.Time) func(*blobEnv) cond {
		return func(e *blobEnv) cond { return cond{IfModifiedSince: f(e)} }
	}
	unmodified := func(f func(*blobEnv) *time.Time) func(*blobEnv) cond {
		return func(e *blobEnv) cond { return cond{IfUnmodifiedSince: f(e)} }
	}
	anyIgnored := &difference{okay, "If-None-Match: * is documented to fail what would write to an existing blob; Azurite checks it only when creating"}
	rows := []struct {
		name                     string
		cond                     func(*blobEnv) cond
		read, put, setMeta, gone blobResult // gone: a put when the blob is not there
		azurite                  map[string]*difference
	}{
		{name: "If-Match this", cond: match(etag), gone: notMet},
		{name: "If-Match another", cond: match(other), read: notMet, put: notMet, setMeta: notMet, gone: notMet},
		{name: "If-Match any", cond: match(wild), gone: notMet},
		{name: "If-None-Match this", cond: noneMatch(etag), read: notModified, put: notMet, setMeta: notMet},
		{name: "If-None-Match another", cond: noneMatch(other)},
		{name: "If-None-Match any", cond: noneMatch(wild), read: unsatisfiable, put: blobExists, setMeta: notMet, azurite: map[string]*difference{"set metadata": anyIgnored, "delete": anyIgnored}},
		{name: "If-Modified-Since then", cond: since(at(0)), read: notModified, put: notMet, setMeta: notMet},
		{name: "If-Modified-Since before", cond: since(at(-time.Second))},
		{name: "If-Unmodified-Since then", cond: unmodified(at(0))},
		{name: "If-Unmodified-Since before", cond: unmodified(at(-time.Second)), read: notMet, put: notMet, setMeta: notMet},
	}
	var cases []blobCase
	for _, row := range rows {
		ac := func(e *blobEnv) *blob.AccessConditions { return modified(row.cond(e)) }
		for _, op := range []struct {
			name string
			do   func(*blobEnv) error
			want blobResult
		}{
			{"get", func(e *blobEnv) error { _, err := e.get(ac(e), blob.HTTPRange{}); return err }, row.read},
			{"put", func(e *blobEnv) error { return e.put("v2", ac(e)) }, row.put},
			{"set metadata", func(e *blobEnv) error { return e.setMetadata(ac(e)) }, row.setMeta},
			{"delete", func(e *blobEnv) error { return e.delete(ac(e)) }, row.setMeta},
			{"put when gone", func(e *blobEnv) error { require.NoError(e.t, e.delete(nil)); return e.put("v2", ac(e)) }, row.gone},
		} {
			cases = append(cases, blobCase{op.name + " " + row.name, available, []blobStep{{op.do, op.want, row.azurite[op.name]}}})
		}
	}
	cases = append(cases, combinedConditionCases()...)
	return append(cases,
		blobCase{"lease and ETag fence together", leased, []blobStep{
			{do: func(e *blobEnv) error {
				return e.put("v2", &blob.AccessConditions{LeaseAccessConditions: withLease(idA).LeaseAccessConditions, ModifiedAccessConditions: &cond{IfMatch: e.etag}})
			}},
			{do: func(e *blobEnv) error { // the same again: the ETag has moved
				return e.put("v3", &blob.AccessConditions{LeaseAccessConditions: withLease(idA).LeaseAccessConditions, ModifiedAccessConditions: &cond{IfMatch: e.etag}})
			}, want: notMet},
			{do: func(e *blobEnv) error {
				e.remember()
				return e.put("v3", &blob.AccessConditions{LeaseAccessConditions: withLease(idB).LeaseAccessConditions, ModifiedAccessConditions: &cond{IfMatch: e.etag}})
			}, want: blobLeaseMismatch},
			{do: func(e *blobEnv) error { return e.content("v2") }},
		}},
		blobCase{"every write has an ETag of its own", available, []blobStep{
			{do: func(e *blobEnv) error {
				seen := map[azcore.ETag]bool{*e.etag: true}
				for range 20 {
					resp, err := e.bc.UploadBuffer(e.ctx, []byte("v1"), nil)
					if err != nil {
						return err
					}
					require.False(e.t, seen[*resp.ETag], "an ETag came back")
					seen[*resp.ETag] = true
					require.Equal(e.t, resp.ETag, e.props().ETag)
				}
				return nil
			}},
		}},
	)
}

// combinedConditionCases returns two conditions at once: a read takes any, a write
// only the pairs where the ETag decides.
func combinedConditionCases() []blobCase {
	type cond = blob.ModifiedAccessConditions
	multiple := blobResult{400, "MultipleConditionHeadersNotSupported"}
	both := func(name string, c func(e *blobEnv, before *time.Time) cond, read, put blobResult) []blobCase {
		ac := func(e *blobEnv) *blob.AccessConditions { return modified(c(e, new(e.modified.Add(-time.Second)))) }
		return []blobCase{
			{"get " + name, available, []blobStep{{do: func(e *blobEnv) error { _, err := e.get(ac(e), blob.HTTPRange{}); return err }, want: read}}},
			{"put " + name, available, []blobStep{{do: func(e *blobEnv) error { return e.put("v2", ac(e)) }, want: put}}},
		}
	}
	return slices.Concat(
		both("If-None-Match this, If-Modified-Since before", func(e *blobEnv, before *time.Time) cond {
			return cond{IfNoneMatch: e.etag, IfModifiedSince: before}
		}, okay, notMet),
		both("If-None-Match this, If-Modified-Since then", func(e *blobEnv, _ *time.Time) cond {
			return cond{IfNoneMatch: e.etag, IfModifiedSince: e.modified}
		}, notModified, notMet),
		both("If-Match this, If-Unmodified-Since before", func(e *blobEnv, before *time.Time) cond {
			return cond{IfMatch: e.etag, IfUnmodifiedSince: before}
		}, notMet, okay),
		both("If-Match this, If-None-Match this", func(e *blobEnv, _ *time.Time) cond {
			return cond{IfMatch: e.etag, IfNoneMatch: e.etag}
		}, notModified, multiple),
	)
}

// contentCases returns the cases of what is written and read.
func contentCases() []blobCase {
	upload := func(e *blobEnv, body string, opts *blockblob.UploadOptions) error {
		_, err := e.bc.Upload(e.ctx, nopCloser{bytes.NewReader([]byte(body))}, opts)
		return err
	}
	rng := func(offset, count int64, want string) func(*blobEnv) error {
		return func(e *blobEnv) error {
			got, err := e.get(nil, blob.HTTPRange{Offset: offset, Count: count})
			require.Equal(e.t, want, got)
			return err
		}
	}
	commit := func(ids ...string) func(*blobEnv) error {
		return func(e *blobEnv) error { _, err := e.bc.CommitBlockList(e.ctx, ids, nil); return err }
	}
	lenientRange := &difference{okay, "416 is documented for a range that begins at or past the end; Azurite answers an empty body"}
	one, two := base64.StdEncoding.EncodeToString([]byte("one")), base64.StdEncoding.EncodeToString([]byte("two"))
	return []blobCase{
		{"properties and metadata come back", available, []blobStep{
			{do: func(e *blobEnv) error {
				sum := md5.Sum([]byte("hello"))
				require.NoError(e.t, upload(e, "hello", &blockblob.UploadOptions{
					HTTPHeaders: &blob.HTTPHeaders{BlobContentType: new("application/json"), BlobCacheControl: new("no-store"), BlobContentLanguage: new("nl"), BlobContentEncoding: new("identity"), BlobContentDisposition: new("inline")},
					// names that a byte order and the service's order sort differently
					Metadata: map[string]*string{"epoch": new("7"), "epoch_at": new("x"), "epoch1": new("y"), "epochs": new("z")},
				}))
				p := e.props()
				require.Equal(e.t, "application/json", *p.ContentType)
				require.Equal(e.t, "no-store", *p.CacheControl)
				require.Equal(e.t, "nl", *p.ContentLanguage)
				require.Equal(e.t, "identity", *p.ContentEncoding)
				require.Equal(e.t, "inline", *p.ContentDisposition)
				require.Equal(e.t, sum[:], p.ContentMD5)
				require.EqualValues(e.t, 5, *p.ContentLength)
				require.Equal(e.t, blob.BlobTypeBlockBlob, *p.BlobType)
				got := map[string]string{}
				for name, value := range p.Metadata {
					got[name] = *value
				}
				require.Equal(e.t, map[string]string{"Epoch": "7", "Epoch_at": "x", "Epoch1": "y", "Epochs": "z"}, got)
				return e.content("hello")
			}},
		}},
		{"a put replaces metadata and properties", available, []blobStep{
			{do: func(e *blobEnv) error { return e.setMetadata(nil) }},
			{do: func(e *blobEnv) error { return e.put("v2", nil) }},
			{do: func(e *blobEnv) error { require.Empty(e.t, e.props().Metadata); return e.content("v2") }},
		}},
		{"an empty blob", available, []blobStep{
			{do: func(e *blobEnv) error { return upload(e, "", nil) }},
			{do: func(e *blobEnv) error { return e.content("") }},
			{do: rng(0, 1, ""), want: rangeNotSatisfied, azurite: lenientRange},
		}},
		{"ranges", available, []blobStep{
			{do: func(e *blobEnv) error { return e.put("0123456789", nil) }},
			{do: rng(0, 4, "0123")},
			{do: rng(4, 0, "456789")},
			{do: rng(8, 100, "89")},
			{do: rng(9, 1, "9")},
			{do: rng(10, 1, ""), want: rangeNotSatisfied, azurite: lenientRange},
		}},
		{"a wrong Content-MD5 is refused", available, []blobStep{
			{do: func(e *blobEnv) error {
				return upload(e, "hello", &blockblob.UploadOptions{TransactionalValidation: blob.TransferValidationTypeMD5(make([]byte, md5.Size))})
			}, want: md5Differs},
			{do: func(e *blobEnv) error { return e.content("v1") }},
			{do: func(e *blobEnv) error {
				sum := md5.Sum([]byte("hello"))
				return upload(e, "hello", &blockblob.UploadOptions{TransactionalValidation: blob.TransferValidationTypeMD5(sum[:])})
			}},
		}},
		{"blocks show when they are committed, in the list's order", available, []blobStep{
			{do: func(e *blobEnv) error { return e.stage(one, "world", nil) }},
			{do: func(e *blobEnv) error { return e.stage(two, "hello ", nil) }},
			{do: func(e *blobEnv) error { return e.content("v1") }},
			{do: func(e *blobEnv) error { return e.sameETag() }},
			{do: commit(two, one)},
			{do: func(e *blobEnv) error { return e.content("hello world") }},
			{do: commit(one)}, // a committed block may be named again
			{do: func(e *blobEnv) error { return e.content("world") }},
			{do: commit(two), want: invalidBlockList},
			{do: func(e *blobEnv) error { return e.stage("YQ==", "a", nil) }},
			{do: func(e *blobEnv) error { return e.stage("YWE=YWE", "a", nil) }, want: blobResult{400, "InvalidQueryParameterValue"}},
		}},
		{"a blob of uncommitted blocks does not exist yet", available, []blobStep{
			{do: func(e *blobEnv) error { return e.delete(nil) }},
			{do: func(e *blobEnv) error { return e.stage(one, "x", nil) }},
			{do: func(e *blobEnv) error { return e.content("") }, want: blobMissing},
			{do: commit(one)},
			{do: func(e *blobEnv) error { return e.content("x") }},
		}},
		{"a blob of uncommitted blocks has no lease yet", available, []blobStep{
			{do: func(e *blobEnv) error { return e.delete(nil) }},
			{do: func(e *blobEnv) error { return e.stage(one, "x", nil) }},
			{
				do: func(e *blobEnv) error { return e.acquire(idA, 60) }, want: blobMissing,
				azurite: &difference{okay, "not documented; ours takes an uncommitted blob for absent, as every read does"},
			},
		}},
		{"block ids of one blob have one length", available, []blobStep{
			{do: func(e *blobEnv) error { return e.stage(one, "x", nil) }},
			{do: func(e *blobEnv) error { return e.stage("b25lb25l", "x", nil) }, want: invalidBlobOrBlock},
		}},
		{"a put with a lease id where no blob is", available, []blobStep{
			{do: func(e *blobEnv) error { return e.delete(nil) }},
			{do: func(e *blobEnv) error { return e.put("v1", withLease(idA)) }}, // the service was seen to take it
		}},
		{"what is not there", available, []blobStep{
			{do: func(e *blobEnv) error { return e.delete(nil) }},
			{do: func(e *blobEnv) error { return e.delete(nil) }, want: blobMissing},
			{do: func(e *blobEnv) error { return e.content("") }, want: blobMissing},
			{do: func(e *blobEnv) error { _, err := e.bc.GetProperties(e.ctx, nil); return err }, want: blobMissing},
			{do: func(e *blobEnv) error { return e.setMetadata(nil) }, want: blobMissing},
			{do: func(e *blobEnv) error { _, err := e.cc.Delete(e.ctx, nil); return err }},
			{do: func(e *blobEnv) error { return e.content("") }, want: containerMissing},
			{do: func(e *blobEnv) error { return e.put("v1", nil) }, want: containerMissing},
			{do: func(e *blobEnv) error { _, err := e.cc.GetProperties(e.ctx, nil); return err }, want: containerMissing},
			{do: func(e *blobEnv) error { _, err := e.cc.Delete(e.ctx, nil); return err }, want: containerMissing},
		}},
		{"a container is made once", available, []blobStep{
			{do: func(e *blobEnv) error { _, err := e.cc.Create(e.ctx, nil); return err }, want: containerExists},
			{do: func(e *blobEnv) error {
				_, err := e.cc.SetMetadata(e.ctx, &container.SetMetadataOptions{Metadata: map[string]*string{"k": new("v")}})
				require.NoError(e.t, err)
				p, err := e.cc.GetProperties(e.ctx, nil)
				require.NoError(e.t, err)
				require.Equal(e.t, "v", *p.Metadata["K"])
				return nil
			}},
		}},
		{"listing comes in pages, in name order", available, []blobStep{
			{do: func(e *blobEnv) error {
				for _, name := range []string{"streams/two", "z", "streams/one", "a"} {
					if _, err := e.cc.NewBlockBlobClient(name).Upload(e.ctx, struct{ io.ReadSeekCloser }{nopCloser{bytes.NewReader(nil)}}, nil); err != nil {
						return err
					}
				}
				var names []string
				pages := 0
				for pager := e.cc.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: new(int32(2))}); pager.More(); pages++ {
					page, err := pager.NextPage(e.ctx)
					if err != nil {
						return err
					}
					for _, item := range page.Segment.BlobItems {
						names = append(names, *item.Name)
						require.NotNil(e.t, item.Properties.ETag)
					}
				}
				require.Equal(e.t, []string{"a", "b", "streams/one", "streams/two", "z"}, names)
				require.Equal(e.t, 3, pages)

				page, err := e.cc.NewListBlobsHierarchyPager("/", nil).NextPage(e.ctx)
				if err != nil {
					return err
				}
				require.Len(e.t, page.Segment.BlobPrefixes, 1)
				require.Equal(e.t, "streams/", *page.Segment.BlobPrefixes[0].Name)
				require.Len(e.t, page.Segment.BlobItems, 3)
				return nil
			}},
		}},
	}
}
