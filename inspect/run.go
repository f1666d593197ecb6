package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// Source is one cluster and the way to it.
type Source = snapshot.Source

// Options are those of an inspection. The zero value of a field takes its default.
type Options struct {
	// Collect bounds the reads of each cluster.
	Collect snapshot.Options
	// Parallel is how many clusters are read at once: 8.
	Parallel int
	Waivers  []Waiver
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Version of Fleetwatch, for the report.
	Version string
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// Run inspects the clusters: Collect, then Judge. A cluster that cannot be
// read is part of the report; an error means that there is no report.
func Run(ctx context.Context, sources []Source, options Options) (*Report, error) {
	snapshots, err := Collect(ctx, sources, options)
	if err != nil {
		return nil, err
	}
	return Judge(snapshots, options)
}

// Collect takes a snapshot of each cluster, in the order of sources.
func Collect(ctx context.Context, sources []Source, options Options) ([]*snapshot.Snapshot, error) {
	if err := validate(sources); err != nil {
		return nil, err
	}
	snapshots := make([]*snapshot.Snapshot, len(sources))
	var group errgroup.Group
	group.SetLimit(cmp.Or(options.Parallel, 8))
	for i, source := range sources {
		group.Go(func() error {
			snapshots[i] = snapshot.Collect(ctx, source, options.Collect)
			return nil
		})
	}
	_ = group.Wait() // Collect returns no error: a snapshot says what is wrong
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("inspect: %w", context.Cause(ctx))
	}
	return snapshots, nil
}

func validate(sources []Source) error {
	if len(sources) == 0 {
		return errors.New("inspect: no cluster to inspect; name one with --cluster, or check the kubeconfig's contexts")
	}
	seen := map[string]bool{}
	for _, source := range sources {
		switch {
		case source.Name == "":
			return errors.New("inspect: a cluster has no name")
		case source.Config == nil && source.Err == nil:
			return fmt.Errorf("inspect: cluster %s has no client configuration", source.Name)
		case seen[source.Name]:
			return fmt.Errorf("inspect: cluster %s is given twice", source.Name)
		}
		seen[source.Name] = true
	}
	return nil
}

// Judge evaluates snapshots, taken now or replayed, and draws the verdict.
func Judge(snapshots []*snapshot.Snapshot, options Options) (*Report, error) {
	if len(snapshots) == 0 {
		return nil, errors.New("inspect: no snapshot to judge")
	}
	now := options.now().UTC()
	waivers := newWaiverSet(options.Waivers, now)
	report := &Report{Schema: Schema, Version: options.Version, Started: now, Finished: now}
	var verdicts []Verdict
	for i, snap := range snapshots {
		cluster := clusterReport(snap, waivers)
		if i == 0 || snap.Started.Before(report.Started) {
			report.Started = snap.Started.UTC()
		}
		if i == 0 || snap.Finished.After(report.Finished) {
			report.Finished = snap.Finished.UTC()
		}
		report.Clusters = append(report.Clusters, cluster)
		verdicts = append(verdicts, cluster.Verdict)
	}
	slices.SortStableFunc(report.Clusters, func(a, b ClusterReport) int { return cmp.Compare(a.Cluster, b.Cluster) })
	report.Verdict = worst(verdicts)
	report.Reasons = fleetReasons(report.Clusters)
	report.Waivers = waivers.uses
	report.ID = report.Started.Format("20060102T150405.000Z")
	return report, nil
}

// fleetReasons says which clusters hold the fleet back.
func fleetReasons(clusters []ClusterReport) []string {
	var reasons []string
	for _, verdict := range slices.Backward(Verdicts()) {
		for _, cluster := range clusters {
			if cluster.Verdict == verdict && verdict != Go {
				for _, reason := range cluster.Reasons {
					reasons = append(reasons, fmt.Sprintf("%s is %s: %s", cluster.Cluster, verdict, reason))
				}
			}
		}
	}
	return reasons
}
