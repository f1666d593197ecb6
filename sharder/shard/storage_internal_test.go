package shard

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

type appender = storage.AppenderV2 // the field and the method of failing need two names

type failing struct {
	appender
	err error
}

func (f failing) AppenderV2(context.Context) appender { return f }
func (f failing) Commit() error                       { return f.err }
func (f failing) Rollback() error                     { return f.err }

func TestGuardNoticesAFullDisk(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "00000001", Err: syscall.ENOSPC}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("appender closed"), ""},
		{full, "is not storing: no space left in /data; free some"},
		{syscall.EIO, "is not storing: cannot write to /data: input/output error; check the disk"},
	} {
		g := newGuard(failing{err: c.err}, "/data")
		if err := g.AppenderV2(t.Context()).Commit(); !errors.Is(err, c.err) {
			t.Errorf("%v: the error became %v", c.err, err)
		}
		got := ""
		if err := g.check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func write(tb testing.TB, dir string, sizes map[string]int) string {
	tb.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "wal"), 0o750); err != nil {
		tb.Fatal(err)
	}
	for name, size := range sizes {
		if err := os.WriteFile(filepath.Join(dir, "wal", name), make([]byte, size), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func TestRoomToOpen(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]int{"00000001": 100, "00000002": 70, "checkpoint.00000000": 500})
	for free, ok := range map[uint64]bool{roomToOpen + 99: false, roomToOpen + 100: true} {
		err := roomFor(dir, func(string) (uint64, error) { return free, nil })
		if _, full := errors.AsType[*StorageError](err); full == ok {
			t.Errorf("%d bytes free: %v", free, err)
		}
	}
	if n, err := freeSpace(dir); err != nil || n == 0 {
		t.Errorf("free space: %d %v", n, err)
	}
}

func TestUnfinishedRepairIsUndone(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]int
		want  int64 // size of segment 3
	}{
		"at once":             {map[string]int{"00000003": 1, "00000003.repair": 9}, 9},
		"an empty one after":  {map[string]int{"00000003": 1, "00000003.repair": 9, "00000004": 0}, 9},
		"the segment is gone": {map[string]int{"00000003.repair": 9}, 9},
		"samples came after":  {map[string]int{"00000003": 1, "00000003.repair": 9, "00000004": 5}, 1},
		"no repair":           {map[string]int{"00000003": 1}, 1},
	} {
		dir := write(t, t.TempDir(), c.files)
		if _, err := undoRepair(dir); err != nil {
			t.Fatal(err)
		}
		if sizes, err := segments(filepath.Join(dir, "wal")); err != nil || sizes[3] != c.want {
			t.Errorf("%s: %v %v", name, sizes, err)
		}
	}
}

func TestStartWaitsForDiskSpaceAndSaysSo(t *testing.T) {
	s, err := New(Config{Name: "shard-0", Replica: "0", DataDir: t.TempDir(), ExternalURL: "http://127.0.0.1:1", StripeSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	var free atomic.Uint64
	s.free, s.roomEvery = func(string) (uint64, error) { return free.Load(), nil }, 10*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	status := func() (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/fleetwatch/v1/status", http.NoBody))
		return w.Code, w.Body.String()
	}
	await := func(want int) (body string) {
		t.Helper()
		tick, deadline := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
		defer tick.Stop()
		for {
			code, body := status()
			if code == want {
				return body
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("HTTP %d %s, want %d", code, body, want)
			}
		}
	}
	if body := await(http.StatusInsufficientStorage); !strings.Contains(body, "is not storing: no space left in ") {
		t.Errorf("body: %s", body)
	}
	free.Store(1 << 40)
	await(http.StatusOK)
	// A log that cannot be written ends it at once.
	_ = s.parts.Load().guard.note(syscall.ENOSPC)
	err = <-ended
	cancel()
	if _, full := errors.AsType[*StorageError](err); !full {
		t.Errorf("ended with %v", err)
	}
	if code, _ := status(); code != http.StatusInsufficientStorage {
		t.Errorf("after the end: HTTP %d", code)
	}
}

func TestPoolsWithoutABodyLimitGetOne(t *testing.T) {
	for text, want := range map[string]int64{
		"job_name: a/b":                       bodyLimit,
		"job_name: a/b\nbody_size_limit: 1KB": 1 << 10,
	} {
		cfg, err := parsePool(target.Pool{Name: "a/b", Config: text})
		if err != nil || int64(cfg.BodySizeLimit) != want {
			t.Errorf("%s: %v %v", text, cfg, err)
		}
	}
}
