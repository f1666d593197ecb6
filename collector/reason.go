package collector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// reason is the outcome of a fetch through the gateway: a bounded set.
type reason string

const (
	reasonOK            reason = "ok"
	reasonRedirected    reason = "status_3xx"
	reasonClientError   reason = "status_4xx"
	reasonServerError   reason = "status_5xx"
	reasonOtherStatus   reason = "status_other"
	reasonUnknownTarget reason = "unknown_target"
	reasonBusy          reason = "busy"
	reasonTimeout       reason = "timeout"
	reasonCanceled      reason = "canceled"
	reasonRefused       reason = "connection_refused"
	reasonUnreachable   reason = "unreachable"
	reasonDNS           reason = "dns"
	reasonTLS           reason = "tls"
	reasonRedirect      reason = "redirect_refused"
	reasonTooLarge      reason = "too_large"
	reasonBroken        reason = "broken_answer"
	reasonOther         reason = "other"
)

// reasons lists every outcome.
var reasons = [...]reason{
	reasonOK, reasonRedirected, reasonClientError, reasonServerError, reasonOtherStatus, reasonUnknownTarget,
	reasonBusy, reasonTimeout, reasonCanceled, reasonRefused, reasonUnreachable, reasonDNS, reasonTLS,
	reasonRedirect, reasonTooLarge, reasonBroken, reasonOther,
}

var (
	errRedirect = errors.New("the target redirects to another address; not followed, only discovered targets are fetched")
	errTooLarge = errors.New("the answer is larger than the collector passes through; see --max-body-bytes")
	errBusy     = errors.New("the collector had no free slot in time; see --max-concurrent-scrapes")
	errClient   = errors.New("the shard went away")
)

// reasonOfStatus classifies a complete answer.
func reasonOfStatus(code int) reason {
	switch {
	case code == http.StatusOK:
		return reasonOK
	case code >= 300 && code < 400:
		return reasonRedirected
	case code >= 400 && code < 500:
		return reasonClientError
	case code >= 500 && code < 600:
		return reasonServerError
	}
	return reasonOtherStatus
}

// reasonOf classifies why a fetch failed. client is the state of the shard's
// request: a shard that gave up is no fault of the target.
func reasonOf(err error, client context.Context) reason {
	if client.Err() != nil || errors.Is(err, errClient) {
		return reasonCanceled
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return reasonDNS
	}
	if isTLS(err) {
		return reasonTLS
	}
	netErr, isNet := errors.AsType[net.Error](err)
	_, isOp := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errBusy):
		return reasonBusy
	case errors.Is(err, errTooLarge):
		return reasonTooLarge
	case errors.Is(err, errRedirect):
		return reasonRedirect
	case errors.Is(err, context.DeadlineExceeded), isNet && netErr.Timeout():
		return reasonTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return reasonRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.EPIPE):
		return reasonBroken
	case isOp:
		return reasonUnreachable
	case strings.Contains(err.Error(), "malformed HTTP") || strings.Contains(err.Error(), "transport connection broken"):
		return reasonBroken // net/http has no type for an answer that is not HTTP
	}
	return reasonOther
}

func isTLS(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return authority || invalid || host || verify || record || alert
}

// status is the HTTP status that tells a shard of r.
func (r reason) status() int {
	switch r {
	case reasonTimeout:
		return http.StatusGatewayTimeout
	case reasonBusy:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadGateway
	}
}
