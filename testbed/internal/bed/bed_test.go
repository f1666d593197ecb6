package bed_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetwatch-io/fleetwatch/testbed/internal/bed"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/layout"
	"github.com/fleetwatch-io/fleetwatch/testbed/internal/state"
)

func touch(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindBinaries(t *testing.T) {
	dir, assets := t.TempDir(), t.TempDir()
	touch(t, dir, "kwok")
	if _, err := bed.FindBinaries("/self", dir, ""); err == nil || !strings.Contains(err.Error(), "kube-state-metrics") || !strings.Contains(err.Error(), "--bin-dir") {
		t.Errorf("got %v, want an error that names kube-state-metrics and --bin-dir", err)
	}
	touch(t, dir, "kube-state-metrics", "coredns")
	touch(t, assets, "etcd")
	got, err := bed.FindBinaries("/self", dir, assets)
	if err != nil {
		t.Fatal(err)
	}
	want := bed.Binaries{
		Self: "/self", Etcd: filepath.Join(assets, "etcd"), KWOK: filepath.Join(dir, "kwok"),
		KubeStateMetrics: filepath.Join(dir, "kube-state-metrics"), CoreDNS: filepath.Join(dir, "coredns"),
	}
	if got != want {
		t.Errorf("found %+v, want %+v", got, want)
	}
}

func options(dir string) layout.Options {
	return layout.Options{Dir: dir, PortBase: 39100, Clusters: 1, Nodes: 1, EtcdMembers: 1, APIServers: 1, AppSeries: 1}
}

func TestRunRefuses(t *testing.T) {
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, dir string)
		change func(*layout.Options)
		want   string
	}{
		{"bad option", nil, func(o *layout.Options) { o.Clusters = 0 }, "--clusters"},
		{"port in use", nil, func(o *layout.Options) { o.PortBase = port - 20 }, "--port-base"},
		{"other etcd members", func(t *testing.T, dir string) {
			if err := state.Write(state.Status{Options: options(dir)}); err != nil {
				t.Fatal(err)
			}
		}, func(o *layout.Options) { o.EtcdMembers = 3 }, "--etcd-members 1"},
		{"runs already", func(t *testing.T, dir string) {
			release, err := state.Lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
		}, func(*layout.Options) {}, "testbed down"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.before != nil {
				tc.before(t, dir)
			}
			o := options(dir)
			tc.change(&o)
			// Should a check be missing, nothing runs for long.
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := bed.Run(ctx, bed.Config{Options: o, Out: io.Discard, Binaries: bed.Binaries{Self: "/bin/false"}})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line about %q", err, tc.want)
			}
		})
	}
}
