package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/pki"
)

func TestAuthorityIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca")
	first, err := pki.OpenAuthority(path, "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	second, err := pki.OpenAuthority(path, "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.CertPEM(), second.CertPEM()) {
		t.Error("opening an authority again made another one")
	}
	pair, err := second.Issue(pki.Leaf{Name: "x", Client: true}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	verify(t, first, pair, x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func TestLeaf(t *testing.T) {
	ca, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Leaf{Name: "system:node:a-worker-001", Groups: []string{"system:nodes"}, Hosts: []string{"a-worker-001", "127.10.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	cert := verify(t, ca, pair, x509.VerifyOptions{DNSName: "127.10.0.1", KeyUsages: server})
	verify(t, ca, pair, x509.VerifyOptions{DNSName: "a-worker-001", KeyUsages: server})
	if cert.Subject.CommonName != "system:node:a-worker-001" || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject is %v", cert.Subject)
	}
	if cert.VerifyHostname("127.10.0.2") == nil {
		t.Error("certificate is good for another node's address")
	}
}

func verify(t *testing.T, ca *pki.Authority, pair pki.Pair, o x509.VerifyOptions) *x509.Certificate {
	t.Helper()
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	o.Roots = x509.NewCertPool()
	o.Roots.AppendCertsFromPEM(ca.CertPEM())
	if _, err := loaded.Leaf.Verify(o); err != nil {
		t.Errorf("verify for %q: %v", o.DNSName, err)
	}
	return loaded.Leaf
}

func TestSigningKeyIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sa")
	var keys [2][]byte
	for i := range keys {
		if err := pki.EnsureSigningKey(path); err != nil {
			t.Fatal(err)
		}
		var err error
		if keys[i], err = os.ReadFile(path + ".key"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(keys[0], keys[1]) {
		t.Error("tokens signed before a restart would be void after it")
	}
}

func TestBrokenAuthorityIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca")
	for _, suffix := range []string{".crt", ".key"} {
		if err := os.WriteFile(path+suffix, []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pki.OpenAuthority(path, "kubernetes", time.Now()); err == nil {
		t.Error("a file that is no certificate was taken for one")
	}
}
