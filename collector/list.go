package collector

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fleetwatch-io/fleetwatch/internal/target"
)

// found is what discovery has found so far: for each provider and source the
// endpoints of all jobs. A source is replaced or removed as a whole.
type found struct {
	mu       sync.Mutex
	bySource map[sourceKey][]endpoint
	missing  int // providers that have not delivered yet
}

type sourceKey struct {
	provider int
	source   string
}

// set replaces what a source has and reports whether that changes anything.
// Most changes of objects do not: an ID covers all that is published.
func (f *found) set(key sourceKey, endpoints []endpoint) (changed bool) {
	slices.SortFunc(endpoints, byTargetID)
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.EqualFunc(f.bySource[key], endpoints, func(a, b endpoint) bool { return a.target.ID == b.target.ID }) {
		return false
	}
	if len(endpoints) == 0 {
		delete(f.bySource, key)
	} else {
		f.bySource[key] = endpoints
	}
	return true
}

func byTargetID(a, b endpoint) int { return strings.Compare(a.target.ID, b.target.ID) }

func (f *found) delivered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing--
}

// all returns every endpoint, one for each ID, sorted by ID, and whether
// every provider has delivered.
func (f *found) all() (endpoints []endpoint, synced bool) {
	f.mu.Lock()
	byID := make(map[string]endpoint, len(f.bySource))
	for _, es := range f.bySource {
		for _, e := range es {
			byID[e.target.ID] = e
		}
	}
	synced = f.missing == 0
	f.mu.Unlock()
	return slices.SortedFunc(maps.Values(byID), byTargetID), synced
}

// snapshot is one published list and what the gateway may reach with it. It is
// read-only.
type snapshot struct {
	body    []byte
	etag    string
	synced  bool
	problem string
	byID    map[string]endpoint
	perJob  map[string]int
}

func newSnapshot(cluster, externalURL string, jobs []*job, endpoints []endpoint, synced bool, problem string) (*snapshot, error) {
	s := &snapshot{synced: synced, problem: problem, byID: make(map[string]endpoint, len(endpoints)), perJob: map[string]int{}}
	list := target.List{
		Cluster: cluster, Synced: synced, Error: problem,
		Pools:   make([]target.Pool, 0, len(jobs)),
		Targets: make([]target.Target, 0, len(endpoints)),
	}
	for _, j := range jobs {
		list.Pools = append(list.Pools, j.pool)
	}
	slices.SortFunc(list.Pools, func(a, b target.Pool) int { return strings.Compare(a.Name, b.Name) })
	keepConnections(endpoints)
	for _, e := range endpoints {
		s.byID[e.target.ID] = e
		s.perJob[e.job.name]++
		t := e.target
		t.ScrapeURL = externalURL + "/clusters/" + cluster + "/targets/" + t.ID + "/metrics"
		list.Targets = append(list.Targets, t)
	}
	body, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("render the target list: %w", err)
	}
	sum := sha256.Sum256(body)
	s.body, s.etag = body, `"`+hex.EncodeToString(sum[:16])+`"`
	return s, nil
}

// maxKeptConnections bounds the connections that wait for the next scrape, at
// some 20 KiB each and more than twice that with TLS.
const maxKeptConnections = 256

// keepConnections chooses the endpoints whose connection is kept between
// scrapes: first those for which a new one is dear. Choosing beats a plain
// limit, which would always close the connection that is needed next.
func keepConnections(endpoints []endpoint) {
	left := maxKeptConnections
	for _, scheme := range []string{"https", "http"} {
		for i := range endpoints {
			if endpoints[i].url.Scheme == scheme {
				endpoints[i].keep = left > 0
				left--
			}
		}
	}
}
