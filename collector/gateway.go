package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	timeoutHeader = "X-Prometheus-Scrape-Timeout-Seconds"
	// errorHeader tells an answer of the gateway from one of the target.
	errorHeader = "X-Fleetwatch-Gateway-Error"
	// maxTimeout bounds what a shard may ask for.
	maxTimeout = 5 * time.Minute
	// writeGrace is the time that a shard has to take the last bytes.
	writeGrace = 5 * time.Second
	bufferSize = 64 << 10
)

// passedRequest and passedResponse are the only headers that pass.
var (
	passedRequest  = [...]string{"Accept", "Accept-Encoding", timeoutHeader, "User-Agent"}
	passedResponse = [...]string{"Content-Type", "Content-Encoding"}
)

// gateway fetches discovered targets for shards. It holds no state but its
// slots and the latest failures; what can be reached is looked up for each
// request.
type gateway struct {
	lookup  func(id string) (endpoint, bool)
	slots   chan struct{} // one element for each fetch under way
	maxBody int64
	metrics *metrics
	log     *slog.Logger
	buffers sync.Pool // *[]byte of bufferSize

	failures failures
}

func newGateway(lookup func(string) (endpoint, bool), concurrency int, maxBody int64, m *metrics, log *slog.Logger) *gateway {
	return &gateway{
		lookup: lookup, slots: make(chan struct{}, concurrency), maxBody: maxBody, metrics: m, log: log,
		buffers:  sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }},
		failures: failures{byID: map[string]string{}},
	}
}

// ServeHTTP answers GET .../targets/{id}/metrics.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	e, ok := g.lookup(r.PathValue("id"))
	if !ok {
		g.metrics.requests.WithLabelValues("", string(reasonUnknownTarget)).Inc()
		g.refuse(w, http.StatusNotFound, reasonUnknownTarget, "no target has this id; it may have gone")
		return
	}
	timeout := scrapeTimeout(r.Header.Get(timeoutHeader), e.job.timeout)
	// A shard that does not take its bytes must not hold a slot for ever.
	_ = http.NewResponseController(w).SetWriteDeadline(start.Add(timeout + writeGrace)) // best effort: not every writer has deadlines
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()

	a := &answer{w: w, limit: g.maxBody}
	err := g.pass(ctx, a, r.Header, e)
	why := reasonOfStatus(a.status)
	if err != nil {
		why = reasonOf(err, r.Context())
	}
	g.metrics.requests.WithLabelValues(e.job.name, string(why)).Inc()
	g.metrics.bytes.WithLabelValues(e.job.name).Add(float64(a.bytes))
	g.metrics.duration.WithLabelValues(e.job.name).Observe(time.Since(start).Seconds())
	if err == nil {
		g.failures.report(e.target.ID, why, "the target answers "+strconv.Itoa(a.status)+" "+http.StatusText(a.status))
		return
	}
	g.failures.report(e.target.ID, why, explain(err))
	g.log.Debug("fetch a target", "target", e.target.ID, "job", e.job.name, "reason", string(why), "err", err)
	if a.started {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	if why != reasonCanceled {
		g.refuse(w, why.status(), why, explain(err))
	}
}

func (g *gateway) refuse(w http.ResponseWriter, status int, why reason, message string) {
	w.Header().Set(errorHeader, string(why))
	http.Error(w, message, status)
}

// pass fetches e in one of the slots and copies the answer to a.
func (g *gateway) pass(ctx context.Context, a *answer, header http.Header, e endpoint) error {
	if err := g.acquire(ctx); err != nil {
		return err
	}
	defer g.release()
	resp, err := g.fetch(ctx, header, e)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buffer := g.buffers.Get().(*[]byte)
	defer g.buffers.Put(buffer)
	return a.copy(resp, *buffer)
}

func (g *gateway) acquire(ctx context.Context) error {
	select {
	case g.slots <- struct{}{}:
	default:
		g.metrics.waiting.Inc()
		defer g.metrics.waiting.Dec()
		select {
		case g.slots <- struct{}{}:
		case <-ctx.Done():
			return errBusy
		}
	}
	g.metrics.inFlight.Inc()
	return nil
}

func (g *gateway) release() {
	g.metrics.inFlight.Dec()
	<-g.slots
}

func (g *gateway) fetch(ctx context.Context, header http.Header, e endpoint) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	for _, name := range passedRequest {
		if values := header.Values(name); len(values) > 0 {
			req.Header[name] = values
		}
	}
	req.Close = !e.keep
	client := http.Client{
		Transport:     e.job.trips.forScheme(e.url.Scheme),
		CheckRedirect: redirectPolicy(e),
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.Header.Get("Location") != "" && e.job.follow {
		resp.Body.Close()
		return nil, errRedirect
	}
	return resp, nil
}

// redirectPolicy follows a redirect within the target itself only: the
// credentials of a request are for this target, and no other address has been
// discovered.
func redirectPolicy(e endpoint) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, via []*http.Request) error {
		if !e.job.follow || len(via) > 5 || next.URL.Scheme != e.url.Scheme || next.URL.Host != e.url.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}
}

// scrapeTimeout is the shard's, or the job's where the shard does not say.
func scrapeTimeout(header string, job time.Duration) time.Duration {
	seconds, err := strconv.ParseFloat(header, 64)
	if err != nil || !(seconds > 0) {
		return job
	}
	if seconds > maxTimeout.Seconds() {
		return maxTimeout
	}
	return time.Duration(seconds * float64(time.Second))
}

// answer is what a shard gets of one fetch.
type answer struct {
	w       http.ResponseWriter
	limit   int64
	status  int
	bytes   int64
	started bool // the status line is on its way: too late for an error
}

// copy passes status, a few headers and the body. An answer that fits into the
// buffer is sent with its length, which spares both sides the chunks.
func (a *answer) copy(resp *http.Response, buffer []byte) error {
	if resp.ContentLength > a.limit {
		return errTooLarge
	}
	n, whole, err := fill(resp.Body, buffer)
	if err != nil {
		return err
	}
	if int64(n) > a.limit {
		return errTooLarge
	}
	for _, name := range passedResponse {
		if values := resp.Header.Values(name); len(values) > 0 {
			a.w.Header()[name] = values
		}
	}
	if _, ok := a.w.Header()["Content-Type"]; !ok {
		a.w.Header()["Content-Type"] = nil // do not let net/http guess one
	}
	if whole {
		a.w.Header().Set("Content-Length", strconv.Itoa(n))
	} else if resp.ContentLength >= 0 {
		a.w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	a.status, a.started = resp.StatusCode, true
	a.w.WriteHeader(resp.StatusCode)
	if err := a.write(buffer[:n]); err != nil || whole {
		return err
	}
	for !whole {
		n, whole, err = fill(resp.Body, buffer)
		if a.bytes+int64(n) > a.limit {
			return errTooLarge
		}
		if werr := a.write(buffer[:n]); werr != nil {
			return werr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill reads until buffer is full or the body has ended, and tells the end of
// the body from a body that was cut, which io.ReadFull does not.
func fill(body io.Reader, buffer []byte) (n int, whole bool, err error) {
	for n < len(buffer) {
		m, err := body.Read(buffer[n:])
		n += m
		if err == io.EOF { // exactly this is the end; a wrapped one is not
			return n, true, nil
		}
		if err != nil {
			return n, false, fmt.Errorf("read the answer: %w", err)
		}
	}
	return n, false, nil
}

func (a *answer) write(p []byte) error {
	n, err := a.w.Write(p)
	a.bytes += int64(n)
	if err != nil {
		return fmt.Errorf("%w: %w", errClient, err)
	}
	return nil
}

// explain is the one line that a shard stores as the target's last error.
func explain(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL: the target's address is known
	}
	return oneLine(err)
}
