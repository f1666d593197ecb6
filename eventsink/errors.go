package eventsink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Ends of a session that are part of the ordinary course.
var (
	errExpired = errors.New("the resource version has expired")
	errEnded   = errors.New("the API server ended the watch")
	errStalled = errors.New("nothing was heard for too long")
)

// journalError marks trouble with the store, not with the cluster.
type journalError struct{ err error }

func (e journalError) Error() string { return "store events: " + e.err.Error() }
func (e journalError) Unwrap() error { return e.err }

// statusError is an answer other than 200.
type statusError struct {
	code       int
	message    string
	retryAfter time.Duration
	// resume is the token with which an expired list can go on.
	resume string
}

func (e *statusError) Error() string {
	switch e.code {
	case http.StatusForbidden:
		return fmt.Sprintf("forbidden (%s); grant list and watch on events in all namespaces", e.message)
	case http.StatusUnauthorized:
		return fmt.Sprintf("unauthorized (%s); renew the credentials of this cluster", e.message)
	}
	return fmt.Sprintf("the API server answered %d (%s)", e.code, e.message)
}

func (e *statusError) Is(target error) bool { return target == errExpired && e.code == http.StatusGone }

// status is the part of a Kubernetes Status that is looked at.
type status struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
}

// maxStatus bounds what is read of an answer that is an error.
const maxStatus = 64 << 10

func readStatus(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatus)) // what could be read is shown
	e := &statusError{code: resp.StatusCode, message: http.StatusText(resp.StatusCode)}
	var s status
	if json.Unmarshal(body, &s) == nil && s.Message != "" {
		e.message, e.resume = s.Message, s.Metadata.Continue
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.retryAfter = min(time.Duration(n)*time.Second, time.Minute)
	}
	return e
}

// reasons are the values of the reason label.
func reasons() []string {
	return []string{"expired", "ended", "stalled", "forbidden", "unauthorized", "throttled", "server", "network", "garbage", "store", "stopped"}
}

// reason maps an error to a bounded set.
func reason(err error) string {
	if errors.Is(err, context.Canceled) {
		return "stopped"
	}
	if _, ok := errors.AsType[journalError](err); ok {
		return "store"
	}
	if _, ok := errors.AsType[garbageError](err); ok {
		return "garbage"
	}
	switch {
	case errors.Is(err, errExpired):
		return "expired"
	case errors.Is(err, errEnded):
		return "ended"
	case errors.Is(err, errStalled):
		return "stalled"
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		switch e.code {
		case http.StatusForbidden:
			return "forbidden"
		case http.StatusUnauthorized:
			return "unauthorized"
		case http.StatusTooManyRequests:
			return "throttled"
		}
		return "server"
	}
	return "network"
}

// garbageError says that an answer is not what an API server sends.
type garbageError struct{ err error }

func (e garbageError) Error() string {
	return "not the answer of a Kubernetes API server: " + e.err.Error()
}
func (e garbageError) Unwrap() error { return e.err }
