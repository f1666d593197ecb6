// Package pki makes the certificates of a testbed cluster. An Authority is
// kept on disk for as long as the cluster's data; leaf certificates are made
// anew at every start, so they always fit the addresses in use.
package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	backdate      = time.Hour // tolerates a clock that is a little behind
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, each in PEM.
type Pair struct{ Cert, Key []byte }

// Leaf describes a certificate to issue. One with Hosts serves; one with
// Client set identifies a client; both may hold.
type Leaf struct {
	Name   string
	Groups []string
	Hosts  []string // DNS names and IP addresses
	Client bool
}

// OpenAuthority loads the authority kept as path.crt and path.key and makes
// it first when neither file exists.
func OpenAuthority(path, name string, now time.Time) (*Authority, error) {
	certPEM, err := os.ReadFile(path + ".crt")
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(path, name, now)
	}
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(path + ".key")
	if err != nil {
		return nil, err
	}
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return nil, fmt.Errorf("read %s.crt: %w", path, err)
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, fmt.Errorf("read %s.key: no PEM block; remove the testbed's directory to start afresh", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s.key: %w", path, err)
	}
	return &Authority{cert: cert, key: key}, nil
}

func newAuthority(path, name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: cert, key: key}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return a, Pair{Cert: a.CertPEM(), Key: keyPEM}.Write(path)
}

// CertPEM is the authority's certificate.
func (a *Authority) CertPEM() []byte { return encodeCert(a.cert.Raw) }

// Issue makes a key and a certificate for it.
func (a *Authority) Issue(l Leaf, now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: l.Name, Organization: l.Groups},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	if l.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if len(l.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", l.Name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: encodeCert(der), Key: keyPEM}, nil
}

// Write stores the pair as path.crt and path.key.
func (p Pair) Write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".key", p.Key, 0o600); err != nil {
		return err
	}
	return os.WriteFile(path+".crt", p.Cert, 0o644)
}

// EnsureSigningKey makes the key that signs service-account tokens, as
// path.key and path.pub, unless it is there already.
func EnsureSigningKey(path string) error {
	if _, err := os.Stat(path + ".pub"); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path+".key", private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(path+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(bytes.TrimSpace(data))
	if block == nil {
		return nil, errors.New("no PEM block; remove the testbed's directory to start afresh")
	}
	return x509.ParseCertificate(block.Bytes)
}
