package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/target"
	"github.com/fleetwatch-io/fleetwatch/sharder"
)

func exampleView() view {
	now := time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)
	return view{
		now: now, ready: true, dataDir: "/data",
		clusters: []clusterRow{
			{id: "a", environment: "production", version: "v1.37.2", nodes: 51, state: "ready", up: 112, expected: 112},
			{id: "b", nodes: -1, state: "unreachable", reason: "connection refused by 10.0.0.1:6443; is the API server running?", up: 3, expected: 60},
		},
		shards:  []shardRow{{name: "shard-0", state: "up", series: 51234, capacity: 75000, targets: 80}, {name: "shard-1", state: "down", capacity: 75000, reason: "no answer"}},
		verdict: verdictRow{verdict: "UNKNOWN", summary: "b is UNKNOWN: unreachable", at: now.Add(-12 * time.Second)},
		urls:    []urlRow{{"Fleetwatch", "http://127.0.0.1:9700"}, {"Query", "http://127.0.0.1:9701"}},
	}
}

func TestScreenGolden(t *testing.T) {
	v := exampleView()
	v.troubles = []string{"shard-1 was restarted (2 times): signal: killed; see /data/logs/shard-1.log"}
	var b bytes.Buffer
	v.render(&b)
	const path = "testdata/screen.golden"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestChanges(t *testing.T) {
	tests := []struct {
		name   string
		change func(*view)
		want   []string
	}{
		{"numbers move all the time", func(v *view) { v.shards[0].series++; v.clusters[0].up--; v.now = v.now.Add(time.Second) }, nil},
		{"a cluster comes back", func(v *view) { v.clusters[1].state, v.clusters[1].reason = "ready", "" }, []string{"cluster b is ready"}},
		{"a shard goes", func(v *view) { v.shards[0].state, v.shards[0].reason = "down", "killed" }, []string{"shard-0 is down: killed"}},
		{"the verdict", func(v *view) { v.verdict.verdict, v.verdict.summary = "GO", "all good" }, []string{"verdict GO: all good"}},
		{"a new inspection with the same outcome", func(v *view) { v.verdict.at = v.now }, nil},
		{"a new trouble", func(v *view) { v.troubles = []string{"one"} }, []string{"one"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			after := exampleView()
			tc.change(&after)
			if diff := cmp.Diff(tc.want, changes(exampleView(), after)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUntrue(t *testing.T) {
	whole := func() *sharder.Snapshot {
		return &sharder.Snapshot{
			Cycle:    sharder.CycleView{Number: 1},
			Shards:   []sharder.ShardView{{Name: "shard-0", Up: true}},
			Clusters: []sharder.ClusterView{{Cluster: "a", Synced: true, Targets: 2}},
			Targets: []sharder.TargetView{
				{Target: target.Target{Cluster: "a"}, Health: target.HealthUp},
				{Target: target.Target{Cluster: "a"}, Health: target.HealthDown},
			},
		}
	}
	ready := map[string]fleet.State{"a": fleet.StateReady}
	tests := []struct {
		name   string
		states map[string]fleet.State
		change func(*sharder.Snapshot)
		want   []string
	}{
		{"all is there, one target down", ready, func(*sharder.Snapshot) {}, nil},
		{"no round yet", ready, func(s *sharder.Snapshot) { s.Cycle.Number = 0 }, []string{"the first round of the sharder"}},
		{"a shard is down", ready, func(s *sharder.Snapshot) { s.Shards[0].Up = false }, []string{"shard-0"}},
		{"a cluster that answers is not discovered", ready, func(s *sharder.Snapshot) { s.Clusters[0].Synced = false }, []string{"the targets of a"}},
		{"one that does not answer need not be", map[string]fleet.State{"a": fleet.StateUnreachable}, func(s *sharder.Snapshot) { s.Clusters = nil }, nil},
		{"unplaced and unscraped", ready, func(s *sharder.Snapshot) { s.Unassigned, s.Unknown = 1, 2 }, []string{"a place for 1 targets", "the first scrape of 2 targets"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := whole()
			tc.change(s)
			if diff := cmp.Diff(tc.want, untrue(s, tc.states)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := countTargets(whole())["a"]; got != (targetCount{up: 1, expected: 2}) {
		t.Errorf("count %+v", got)
	}
}

func TestFit(t *testing.T) {
	lines := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "a very long warning"}
	tests := []struct {
		name          string
		width, height int
		want          []string
	}{
		{"all fits", 80, 11, lines},
		{"too wide", 8, 11, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "a very …"}},
		{"too high: the middle goes", 80, 9, []string{"1", "2", "3", "... 3 more lines on a taller terminal, or at the Fleetwatch URL", "7", "8", "9", "a very long warning"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fit(lines, tc.width, tc.height)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
