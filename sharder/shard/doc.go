// Package shard is one Prometheus assembled from Prometheus' own packages,
// with targets assigned instead of discovered.
//
// It serves the Prometheus HTTP API, so that thanos sidecar, Grafana and
// promtool take it for a Prometheus, and beside it:
//
//	GET  /fleetwatch/v1/status      what it scrapes and how that goes
//	PUT  /fleetwatch/v1/assignment  everything that it shall scrape
//	POST /fleetwatch/v1/probe       one trial scrape, counted and thrown away
//
// What stays true: an assignment is on disk before it is acknowledged and is
// applied again at start before anything else, so the sharder may be down; an
// epoch below the highest seen is refused; a target that leaves for another
// shard stops without stale markers and with no scrape in flight, one that is
// gone for good stops with them; a bad pool fails its own targets only.
package shard
