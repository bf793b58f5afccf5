package blob_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inMemory returns a client that reaches the server without a socket.
func inMemory(t *testing.T, transport policy.Transporter) *azblob.Client {
	t.Helper()
	client, err := azblob.NewClientFromConnectionString(blob.ConnectionString("blob.test"), &azblob.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: transport, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	require.NoError(t, err)
	return client
}

func TestServesOverTCPAndJoins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- blob.New(blob.Options{}).Run(ctx, l) }()

	transport := &http.Transport{}
	client, err := azblob.NewClientFromConnectionString(blob.ConnectionString(l.Addr().String()), &azblob.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}},
	})
	require.NoError(t, err)
	_, err = client.CreateContainer(ctx, "leader", nil)
	require.NoError(t, err)
	_, err = client.UploadBuffer(ctx, "leader", "stream", bytes.Repeat([]byte("0123456789abcdef"), 1<<16), &azblob.UploadBufferOptions{BlockSize: 100_000})
	require.NoError(t, err)
	buf := make([]byte, 1<<20)
	n, err := client.DownloadBuffer(ctx, "leader", "stream", buf, &azblob.DownloadBufferOptions{BlockSize: 99_999})
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, n)
	require.Equal(t, bytes.Repeat([]byte("0123456789abcdef"), 1<<16), buf)

	cancel()
	require.NoError(t, <-done)
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err, "the listener must be closed")
	transport.CloseIdleConnections()
}

func TestRunWithContextAlreadyDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, blob.New(blob.Options{}).Run(ctx, l))
}

func TestRunReportsAListenerThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorIs(t, blob.New(blob.Options{}).Run(t.Context(), l), net.ErrClosed)
}

func TestLeaseUnderVirtualTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		ctx := t.Context()
		server := blob.New(blob.Options{})
		transport := server.Transport()
		transport.Delay = 100 * time.Millisecond
		client := inMemory(t, transport)
		begin := time.Now()
		_, err := client.CreateContainer(ctx, "leader", nil)
		require.NoError(t, err)
		require.Equal(t, 100*time.Millisecond, time.Since(begin))
		_, err = client.UploadBuffer(ctx, "leader", "stream", []byte("{}"), nil)
		require.NoError(t, err)
		bc := client.ServiceClient().NewContainerClient("leader").NewBlobClient("stream")
		one, err := lease.NewBlobClient(bc, nil)
		require.NoError(t, err)
		two, err := lease.NewBlobClient(bc, nil)
		require.NoError(t, err)

		_, err = one.AcquireLease(ctx, 15, nil)
		require.NoError(t, err)
		time.Sleep(14800 * time.Millisecond) // acquired in the middle of the round trip
		_, err = two.AcquireLease(ctx, 15, nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseAlreadyPresent), "%v", err)
		_, err = two.AcquireLease(ctx, 15, nil)
		require.NoError(t, err)
		_, err = one.RenewLease(ctx, nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseIDMismatchWithLeaseOperation), "%v", err)
	})
}

func TestContextEndsAfterTheRequestTookEffect(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		server := blob.New(blob.Options{})
		slow := server.Transport()
		slow.Delay = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		_, err := inMemory(t, slow).CreateContainer(ctx, "leader", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = inMemory(t, server.Transport()).CreateContainer(t.Context(), "leader", nil)
		require.True(t, bloberror.HasCode(err, bloberror.ContainerAlreadyExists), "%v", err)
	})
}

func TestWrongKeyIsRefused(t *testing.T) {
	server := blob.New(blob.Options{})
	wrong := strings.Replace(blob.ConnectionString("blob.test"), "AccountKey=Eby8", "AccountKey=Eby9", 1)
	client, err := azblob.NewClientFromConnectionString(wrong, &azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: server.Transport()}})
	require.NoError(t, err)
	_, err = client.CreateContainer(t.Context(), "leader", nil)
	require.True(t, bloberror.HasCode(err, bloberror.AuthenticationFailed), "%v", err)
	respErr := new(azcore.ResponseError)
	require.ErrorAs(t, err, &respErr)
	require.Equal(t, http.StatusForbidden, respErr.StatusCode)
}

type staticToken string

func (s staticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(s), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokenCredential(t *testing.T) {
	server := blob.New(blob.Options{Token: "secret"})
	for token, code := range map[staticToken]bloberror.Code{"secret": "", "other": bloberror.InvalidAuthenticationInfo} {
		client, err := azblob.NewClient("https://devstoreaccount1.blob.core.windows.net", token,
			&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: server.Transport()}})
		require.NoError(t, err)
		_, err = client.CreateContainer(t.Context(), "leader", nil)
		if code == "" {
			require.NoError(t, err)
			continue
		}
		require.True(t, bloberror.HasCode(err, code), "%v", err)
	}
}

func TestFailIsAnOutageThatEnds(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var seen []int
		server := blob.New(blob.Options{OnRequest: func(_ *http.Request, status int) { seen = append(seen, status) }})
		client := inMemory(t, server.Transport())
		server.Fail(0, 5*time.Second)
		_, err := client.CreateContainer(t.Context(), "leader", nil)
		require.True(t, bloberror.HasCode(err, bloberror.ServerBusy), "%v", err)
		time.Sleep(5 * time.Second)
		_, err = client.CreateContainer(t.Context(), "leader", nil)
		require.NoError(t, err)
		require.Equal(t, []int{503, 201}, seen)
	})
}

func TestContentMD5(t *testing.T) {
	ctx := t.Context()
	client := inMemory(t, blob.New(blob.Options{}).Transport())
	_, err := client.CreateContainer(ctx, "leader", nil)
	require.NoError(t, err)
	body := []byte("some content")
	sum := md5.Sum(body)
	_, err = client.UploadBuffer(ctx, "leader", "stream", body, nil)
	require.NoError(t, err)
	got, err := client.DownloadStream(ctx, "leader", "stream", nil)
	require.NoError(t, err)
	require.Equal(t, sum[:], got.ContentMD5)
	require.NoError(t, got.Body.Close())
}

// A name of metadata that is no identifier is refused. Names come back in lower case, as clients
// send them.
func TestMetadataNames(t *testing.T) {
	ctx := t.Context()
	server := blob.New(blob.Options{})
	client := inMemory(t, server.Transport())
	_, err := client.CreateContainer(ctx, "leader", nil)
	require.NoError(t, err)
	bc := client.ServiceClient().NewContainerClient("leader").NewBlockBlobClient("x")
	for _, name := range []string{"not-a-name", "1st", "a.b"} {
		_, err = client.UploadBuffer(ctx, "leader", "x", nil, &azblob.UploadBufferOptions{Metadata: map[string]*string{name: new("1")}})
		require.ErrorContains(t, err, "InvalidMetadata")
	}
	_, err = client.UploadBuffer(ctx, "leader", "x", nil, &azblob.UploadBufferOptions{Metadata: map[string]*string{"_epoch2": new("1")}})
	require.NoError(t, err)
	p, err := bc.GetProperties(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]*string{"_epoch2": new("1")}, p.Metadata)
}

// The body of an error is text that a client may show as it came.
func TestErrorsAreText(t *testing.T) {
	client := inMemory(t, blob.New(blob.Options{}).Transport())
	_, err := client.DownloadStream(t.Context(), "none", "x", nil)
	require.ErrorContains(t, err, "\nRequestId:")
	require.NotContains(t, err.Error(), "&#x")
}
