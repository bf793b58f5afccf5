package emulator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is the validity of the certificates: they are created at every start, and some clients
// refuse more than 825 days.
const validity = 365 * 24 * time.Hour

// certificates creates an authority and its certificate for host and for this machine. ca is the
// certificate that clients must trust, as PEM.
func certificates(now time.Time, host string) (config *tls.Config, ca []byte, err error) {
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity), BasicConstraintsValid: true,
		}
	}
	authority := template(now.UnixNano(), "Sluice embedded servers, CA")
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of a CA: %w", err)
	}
	signed, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make the certificate of a CA: %w", err)
	}
	server := template(now.UnixNano()+1, "localhost")
	server.KeyUsage, server.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames, server.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if ip := net.ParseIP(host); ip != nil {
		server.IPAddresses = append(server.IPAddresses, ip)
	} else {
		server.DNSNames = append(server.DNSNames, host)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of the servers: %w", err)
	}
	leaf, err := x509.CreateCertificate(rand.Reader, server, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make the certificate of the servers: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf}, PrivateKey: key}}, MinVersion: tls.VersionTLS12,
	}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), nil
}
