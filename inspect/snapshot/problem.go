package snapshot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errMalformed marks an answer that is not what was asked for.
var errMalformed = errors.New("malformed answer")

// errTooMany marks a list that is longer than Options.MaxItems.
var errTooMany = errors.New("too many objects")

// statusError is an HTTP answer outside 2xx from a path that is not a Kubernetes API.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", int(e), http.StatusText(int(e)))
}

// classify is the one place where errors become Reasons.
func classify(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Reason: reasonOf(err), Message: shorten(err.Error(), 400)}
}

func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, errTooMany):
		return ReasonTooMany
	case errors.Is(err, errMalformed):
		return ReasonMalformed
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case apierrors.IsUnauthorized(err):
		return ReasonUnauthorized
	case apierrors.IsNotFound(err):
		return ReasonNotFound
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return ReasonExpired
	case apierrors.IsTooManyRequests(err):
		return ReasonThrottled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return ReasonTimeout
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return reasonOfStatus(int(status))
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return reasonOfStatus(int(status.ErrStatus.Code))
	}
	if reason, ok := reasonOfNetwork(err); ok {
		return reason
	}
	return ReasonOther
}

func reasonOfStatus(code int) Reason {
	switch {
	case code == http.StatusUnauthorized:
		return ReasonUnauthorized
	case code == http.StatusForbidden:
		return ReasonForbidden
	case code == http.StatusNotFound:
		return ReasonNotFound
	case code == http.StatusTooManyRequests:
		return ReasonThrottled
	case code >= 500:
		return ReasonServerError
	default:
		return ReasonOther
	}
}

func reasonOfNetwork(err error) (Reason, bool) {
	if isTLS(err) {
		return ReasonTLS, true
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return ReasonRefused, true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return ReasonDNS, true
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return ReasonTimeout, true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return ReasonNetwork, true
	}
	return "", false
}

func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

// unverified returns the certificate that a failed handshake was shown.
func unverified(err error) *x509.Certificate {
	verification, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok || len(verification.UnverifiedCertificates) == 0 {
		return nil
	}
	return verification.UnverifiedCertificates[0]
}

// shorten keeps a text on one line and within a bound.
func shorten(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
