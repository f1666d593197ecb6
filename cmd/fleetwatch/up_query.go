package main

import (
	"context"
	"fmt"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// queryClient asks Thanos Query.
type queryClient struct {
	api promv1.API
	err error
}

func newQueryClient(url string) *queryClient {
	client, err := promapi.NewClient(promapi.Config{Address: url})
	if err != nil {
		return &queryClient{err: err}
	}
	return &queryClient{api: promv1.NewAPI(client)}
}

// targetsUp counts the targets that are up by cluster, as Thanos Query sees
// them over all shards.
func (q *queryClient) targetsUp(ctx context.Context) (map[string]int, error) {
	if q.err != nil {
		return nil, q.err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	value, _, _, err := q.api.Query(ctx, `count by (cluster) (up == 1)`, time.Now())
	if err != nil {
		return nil, fmt.Errorf("query Thanos: %w", err)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("query Thanos: got %s instead of a vector", value.Type())
	}
	counts := map[string]int{}
	for _, sample := range vector {
		counts[string(sample.Metric["cluster"])] = int(sample.Value)
	}
	return counts, nil
}
