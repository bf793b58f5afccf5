package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// withNamespaces runs a Standard and a Premium namespace behind TLS while f runs. f gets the
// environment the module's tests ask for, which makes them trust the certificate too.
func withNamespaces(ctx context.Context, logs string, f func(env []string) error) error {
	temp, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	log := slog.New(slog.DiscardHandler)
	if logs != "" {
		file, err := os.Create(filepath.Join(logs, "server.log"))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		log = slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	env := []string{
		"AZURE_RECORD_MODE=live", "SSL_CERT_FILE=" + filepath.Join(temp, "ca.pem"), "SSL_CERT_DIR=" + temp,
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var cert tls.Certificate // made once the ports are known
	var names []string
	var run []func(context.Context) error
	for _, tier := range []struct {
		suffix  string
		premium bool
		limit   uint64
	}{{"", false, 256 << 10}, {"_PREMIUM", true, 1 << 20}} {
		s, err := servicebus.New(entities(), servicebus.Options{
			Logger: log, Keys: keys(), Premium: tier.premium, MaxMessageBytes: tier.limit,
		})
		if err != nil {
			return err
		}
		l, err := listen()
		if err != nil {
			return err
		}
		run = append(run, func(ctx context.Context) error {
			return s.RunTLS(ctx, l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
		})
		// A name, not an address, since clients check the certificate against it.
		_, port, _ := strings.Cut(l.Addr().String(), ":")
		addr := "localhost:" + port
		names = append(names, addr)
		env = append(env, "SERVICEBUS_ENDPOINT"+tier.suffix+"="+addr)
		for i, name := range []string{"", "_NO_MANAGE", "_LISTEN_ONLY", "_SEND_ONLY"} {
			if tier.premium && name != "" {
				continue
			}
			text := keys()[i].ConnectionString(addr)
			env = append(env, "SERVICEBUS_CONNECTION_STRING"+name+tier.suffix+"="+strings.TrimSuffix(text, "UseDevelopmentEmulator=true;"))
		}
	}
	if cert, err = certificate(filepath.Join(temp, "ca.pem"), names); err != nil {
		return fmt.Errorf("make certificate: %w", err)
	}
	return serve(ctx, stop, run, func() error { return f(env) })
}

// keys returns the keys that the module's test-resources.bicep makes.
func keys() []servicebus.Key {
	return []servicebus.Key{
		servicebus.RootKey(),
		{Name: "NoManage", Value: "bm8tbWFuYWdl", Rights: servicebus.Listen | servicebus.Send},
		{Name: "ListenOnly", Value: "bGlzdGVuLW9ubHk=", Rights: servicebus.Listen},
		{Name: "SendOnly", Value: "c2VuZC1vbmx5", Rights: servicebus.Send},
	}
}

func entities() servicebus.Config {
	out := servicebus.Outbound{LockDuration: 5 * time.Minute, MaxDeliveryCount: 10}
	sessions := out
	sessions.RequiresSession = true
	return servicebus.Config{Queues: []servicebus.Queue{
		{Name: "testQueue", Outbound: out}, {Name: "testQueueWithSessions", Outbound: sessions},
	}}
}

// certificate creates a certificate for localhost and writes it to path, for clients to trust. Its
// names are host:port, because the SDK compares them with an endpoint that includes the port.
func certificate(path string, names []string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    append([]string{"localhost"}, names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
