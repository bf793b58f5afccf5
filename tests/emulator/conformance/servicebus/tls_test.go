package servicebus_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// One port serves AMQP and the administration over TLS to unmodified clients, without a hint that
// this is an emulator.
func TestTLSCarriesAMQPAndAdministration(t *testing.T) {
	donor := httptest.NewTLSServer(nil) // for its certificate, which is for example.com
	certificate, roots := donor.TLS.Certificates[0], x509.NewCertPool()
	roots.AddCert(donor.Certificate())
	donor.Close()
	s, err := servicebus.New(servicebus.Config{}, servicebus.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.RunTLS(ctx, l, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}); err != nil {
			t.Errorf("run TLS: %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()

	trust := &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}
	text := strings.TrimSuffix(servicebus.ConnectionString(l.Addr().String()), "UseDevelopmentEmulator=true;")
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trust.Clone()}}
	defer web.CloseIdleConnections()
	a, err := admin.NewClientFromConnectionString(text, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: web}})
	require.NoError(t, err)
	_, err = a.CreateQueue(t.Context(), "q", nil)
	require.NoError(t, err)

	c, err := azservicebus.NewClientFromConnectionString(text, &azservicebus.ClientOptions{TLSConfig: trust.Clone()})
	require.NoError(t, err)
	defer func() { _ = c.Close(ctx) }()
	sender, err := c.NewSender("q", nil)
	require.NoError(t, err)
	require.NoError(t, sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("x")}, nil))
	counts, err := a.GetQueueRuntimeProperties(t.Context(), "q", nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, counts.ActiveMessageCount)
}
