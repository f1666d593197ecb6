package collector

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
)

// failures holds why the latest fetch of a target failed, for those targets
// alone whose latest fetch did. It is as large as the target list at most.
type failures struct {
	mu   sync.Mutex
	byID map[string]string
}

// maxFailure bounds one cause in bytes.
const maxFailure = 300

// report records the outcome of one fetch of a target that lookup still knows.
func (f *failures) report(id string, why reason, cause string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch why {
	case reasonOK:
		delete(f.byID, id)
	case reasonCanceled: // says nothing of the target
	default:
		if len(cause) > maxFailure {
			cause = cause[:maxFailure]
		}
		f.byID[id] = string(why) + ": " + cause
	}
}

// keep forgets the targets that are gone.
func (f *failures) keep(known map[string]endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.byID {
		if _, ok := known[id]; !ok {
			delete(f.byID, id)
		}
	}
}

// render is {"errors": {"<target id>": "<reason>: <cause>"}}.
func (f *failures) render() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return json.Marshal(map[string]map[string]string{"errors": f.byID})
}

// serveErrors tells of each target whose latest fetch failed why it did: more
// than the status code that a shard keeps.
func (c *Collector) serveErrors(w http.ResponseWriter, _ *http.Request) {
	c.gateway.failures.keep(c.published.Load().byID)
	body, err := c.gateway.failures.render()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the sharder went away: it will ask again
}
