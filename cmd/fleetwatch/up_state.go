package main

import (
	"fmt"
	"time"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/internal/supervise"
)

// view gathers what the screen shows, from what each part says of itself.
func (u *up) view() view {
	v := view{now: time.Now(), ready: u.api.ready.Load(), verdict: u.inspector.last(), dataDir: u.cfg.dataDir}
	for _, c := range u.clusterItems() {
		v.clusters = append(v.clusters, clusterRow{
			id: c.ID, environment: c.Environment, version: c.Status.Version, nodes: c.Status.Nodes,
			state: string(c.Status.State), reason: c.Status.Reason, up: c.TargetsUp, expected: c.TargetsExpected,
		})
		if c.EventsError != "" && c.Status.Reason == "" {
			v.troubles = append(v.troubles, fmt.Sprintf("events of %s are not coming in: %s", c.ID, c.EventsError))
		}
	}
	snapshot := u.sharder.Snapshot()
	for _, c := range snapshot.Clusters {
		if c.Error != "" && u.fleet.Status(c.Cluster).State == fleet.StateReady {
			v.troubles = append(v.troubles, fmt.Sprintf("the target list of %s is not fresh: %s", c.Cluster, c.Error))
		}
	}
	for _, s := range snapshot.Shards {
		row := shardRow{name: s.Name, series: s.HeadSeries, capacity: s.Capacity, targets: s.Targets, state: shardState(s), reason: s.LastError}
		if row.state == "overfull" {
			row.reason = "give it more room with --shard-capacity, or more shards with --shards"
		}
		v.shards = append(v.shards, row)
	}
	if snapshot.Unassigned > 0 {
		v.troubles = append(v.troubles, fmt.Sprintf("%d targets are on no shard yet", snapshot.Unassigned))
	}
	for _, file := range u.store.State().Quarantined {
		v.troubles = append(v.troubles, fmt.Sprintf("the records in %s are damaged and out of service; delete the file to end this warning", file))
	}
	for _, c := range u.children.Children() {
		if c.State == supervise.StateBackoff || c.State == supervise.StateRunning && c.Restarts > 0 && time.Since(c.Since) < 5*time.Minute {
			v.troubles = append(v.troubles, fmt.Sprintf("%s was restarted (%d times): %s; see %s", c.Name, c.Restarts, c.LastExit, c.LogFile))
		}
	}
	fleetwatch := u.cfg.url(u.cfg.ports.fleetwatch)
	v.urls = []urlRow{
		{"Fleetwatch", fleetwatch},
		{"Report", fleetwatch + "/report"},
		{"Query", u.cfg.url(u.cfg.ports.query)},
	}
	if fleetwatch != defaultServer {
		v.urls = append(v.urls, urlRow{"Commands", "export FLEETWATCH_SERVER=" + fleetwatch})
	}
	if u.cfg.kubeconfig == "" {
		v.urls = append(v.urls, urlRow{"Kubeconfig", u.cfg.testbedKubeconfig()})
	}
	return v
}

// clusterItems joins what fleet, sharder and event sink know of each cluster.
func (u *up) clusterItems() []clusterItem {
	counts := countTargets(u.sharder.Snapshot())
	events := map[string]string{}
	for _, s := range u.events.State() {
		events[s.Cluster] = s.LastError
	}
	items := []clusterItem{}
	for _, c := range u.fleet.Clusters() {
		items = append(items, clusterItem{
			ID: c.ID, Alias: c.Alias, Environment: c.Environment, Server: c.Server, Status: u.fleet.Status(c.ID),
			TargetsUp: counts[c.ID].up, TargetsExpected: counts[c.ID].expected, EventsError: events[c.ID],
		})
	}
	return items
}
