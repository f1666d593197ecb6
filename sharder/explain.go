package sharder

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// explain replaces what a shard says of a target that the gateway could not
// fetch, a bare HTTP status, by the collector's reason. The collectors are
// asked at once, and only those of clusters that have such a target; one that
// gives no answer leaves the shard's words.
func (s *Sharder) explain(ctx context.Context, sources []Source) {
	unexplained := map[string][]*entry{}
	for _, e := range s.state.Targets {
		if e.status != nil && e.status.Health == target.HealthDown && fromGateway(e.status.LastError) {
			unexplained[e.Target.Cluster] = append(unexplained[e.Target.Cluster], e)
		}
	}
	if len(unexplained) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StatusTimeout)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(64)
	var mu sync.Mutex
	reasons := map[string]map[string]string{}
	for _, src := range sources {
		if src.Errors == nil || unexplained[src.Cluster] == nil {
			continue
		}
		all.Go(func() error {
			got, err := src.Errors(ctx)
			if err != nil {
				s.log.Debug("collector does not say why targets are down", "cluster", src.Cluster, "err", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			reasons[src.Cluster] = got
			return nil
		})
	}
	_ = all.Wait() // errors are told above
	for cluster, entries := range unexplained {
		for _, e := range entries {
			if why := reasons[cluster][e.Target.ID]; why != "" {
				e.status.LastError = strings.ToValidUTF8(why[:min(len(why), reasonLimit)], "")
			}
		}
	}
}

// fromGateway reports whether an error may be the gateway's word for a fetch
// that failed behind it.
func fromGateway(text string) bool {
	for _, status := range []string{"HTTP status 502", "HTTP status 503", "HTTP status 504"} {
		if strings.Contains(text, status) {
			return true
		}
	}
	return false
}
