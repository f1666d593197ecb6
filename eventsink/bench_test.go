package eventsink_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetwatch-io/fleetwatch/eventsink"
	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/embedded"
)

// many is an API server with n Events, which costs next to nothing itself.
type many int

func (m many) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	if q.Has("watch") {
		return newFakeAPI().RoundTrip(req)
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	to, next := min(from+500, int(m)), ""
	if to < int(m) {
		next = strconv.Itoa(to)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"1000","continue":%q},"items":[`, next)
	for i := from; i < to; i++ {
		if i > from {
			b.WriteByte(',')
		}
		at := time.Date(2026, 11, 30, 10, 0, i/100, 0, time.UTC).Format(time.RFC3339)
		fmt.Fprintf(&b, `{"metadata":{"name":"web-%[1]d.18a","namespace":"default","uid":"%08[2]x-0000-4000-8000-%012[1]d","resourceVersion":"%[1]d","creationTimestamp":%[3]q,"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":%[3]q,"fieldsType":"FieldsV1","fieldsV1":{"f:count":{},"f:firstTimestamp":{},"f:involvedObject":{},"f:lastTimestamp":{},"f:message":{},"f:reason":{},"f:source":{"f:component":{},"f:host":{}},"f:type":{}}}]},"involvedObject":{"kind":"Pod","namespace":"default","name":"web-%[4]d","uid":"%012[4]d","apiVersion":"v1","fieldPath":"spec.containers{web}"},"reason":"BackOff","message":"Back-off restarting failed container web in pod web-%[4]d_default(6a7d9f1e-0000-4000-8001-%012[4]d)","source":{"component":"kubelet","host":"node-1"},"firstTimestamp":%[3]q,"lastTimestamp":%[3]q,"count":1,"type":"Warning","eventTime":null}`,
			i, uint32(i)*2654435761, at, i%5000)
	}
	b.WriteString("]}")
	return answer(http.StatusOK, b.String()), nil
}

// BenchmarkSink takes 20,000 Events from the list into the embedded store.
func BenchmarkSink(b *testing.B) {
	const events = 20_000
	n := 0
	for b.Loop() {
		s, err := embedded.Open(embedded.Config{Dir: b.TempDir(), Now: func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		j := untilListed{s, cancel}
		sink, err := eventsink.New(eventsink.Config{Clusters: []eventsink.Cluster{{Name: "a", REST: &rest.Config{Host: "http://x", Transport: many(events)}}}, Journal: j})
		if err != nil {
			b.Fatal(err)
		}
		if err := sink.Run(ctx); err != nil {
			b.Fatal(err)
		}
		if n += int(sink.State()[0].Records); n%events != 0 {
			b.Fatal(n)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// untilListed calls listed once a position is durable.
type untilListed struct {
	eventsink.Journal
	listed func()
}

func (u untilListed) Append(ctx context.Context, records []record.Record, p record.Position) (int, error) {
	n, err := u.Journal.Append(ctx, records, p)
	if p.Cluster != "" {
		u.listed()
	}
	return n, err
}
