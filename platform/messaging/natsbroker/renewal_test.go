package natsbroker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
)

// C134: the client's certificate has expired, and is renewed in its file while
// the process goes on.
func TestACertificateThatIsRenewedInItsFileIsUsedForTheNextConnection(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s := natstest.New(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.pair(t, "server", time.Hour)},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool}
	})
	a.issue(t, "test", -time.Minute)
	url := strings.Replace(s.URL(), "nats://", "tls://", 1) + "?ca=" + a.file("ca.crt") + "&cert=" + a.file("test.crt") + "&key=" + a.file("test.key")
	b := connect(t, url, natsbroker.Config{})
	poll(t, "the expired one is refused", func() bool {
		err := b.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "certificate")
	})
	a.issue(t, "test", time.Hour)
	awaitReady(t, b)
}

// An authority issues certificates into a folder.
type authority struct {
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pool   *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{folder: t.TempDir(), pool: x509.NewCertPool()}
	a.key = newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	a.write(t, "ca.crt", "CERTIFICATE", raw)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) file(name string) string { return filepath.Join(a.folder, name) }

func (a *authority) write(t *testing.T, name, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue writes a certificate, and its key, that is valid for a time from now.
func (a *authority) issue(t *testing.T, name string, valid time.Duration) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid)}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".key", "EC PRIVATE KEY", secret)
	a.write(t, name+".crt", "CERTIFICATE", raw)
}

func (a *authority) pair(t *testing.T, name string, valid time.Duration) tls.Certificate {
	t.Helper()
	a.issue(t, name, valid)
	pair, err := tls.LoadX509KeyPair(a.file(name+".crt"), a.file(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
