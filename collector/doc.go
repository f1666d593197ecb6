// Package collector is the only part of Fleetwatch that talks to the targets
// of a cluster; one process serves one cluster.
//
// It discovers with Prometheus' own Kubernetes discovery and relabelling, from
// genuine scrape_configs (the built-in profile and files of the user), and
// serves the target list and the scrape gateway, which fetches a target with
// the credentials of the cluster and streams the answer through, unparsed.
//
// What must stay true:
//   - Credentials never leave the process, and only jobs that declare it are
//     fetched with the credentials of the cluster.
//   - Only discovered targets can be reached through the gateway.
//   - `cluster` is set last, by the collector, on targets and on series.
//   - The same endpoint with the same labels has the same ID, always; a list is
//     sorted and complete, or says that it is not synced.
//   - An API server that is away takes no target from the list, and stops no
//     fetch of another target.
package collector
