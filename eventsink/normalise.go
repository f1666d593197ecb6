package eventsink

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// stamp is a Kubernetes time; what cannot be read is no time.
type stamp struct{ time.Time }

func (s *stamp) UnmarshalJSON(b []byte) error {
	s.Time = time.Time{}
	var text string
	if json.Unmarshal(b, &text) != nil {
		return nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && 1970 <= t.Year() && t.Year() < 2200 {
		s.Time = t.UTC()
	}
	return nil
}

// event is the part of a core/v1 Event that becomes columns. Events written
// through events.k8s.io have the same fields with others filled.
type event struct {
	Metadata struct {
		Name              string `json:"name"`
		Namespace         string `json:"namespace"`
		UID               string `json:"uid"`
		ResourceVersion   string `json:"resourceVersion"`
		CreationTimestamp stamp  `json:"creationTimestamp"`
		ManagedFields     []struct {
			Time stamp `json:"time"`
		} `json:"managedFields"`
	} `json:"metadata"`
	InvolvedObject struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
		FieldPath  string `json:"fieldPath"`
	} `json:"involvedObject"`
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Action  string `json:"action"`
	Source  struct {
		Component string `json:"component"`
		Host      string `json:"host"`
	} `json:"source"`
	ReportingComponent string `json:"reportingComponent"`
	ReportingInstance  string `json:"reportingInstance"`
	Count              int64  `json:"count"`
	FirstTimestamp     stamp  `json:"firstTimestamp"`
	LastTimestamp      stamp  `json:"lastTimestamp"`
	EventTime          stamp  `json:"eventTime"`
	Series             *struct {
		Count            int64 `json:"count"`
		LastObservedTime stamp `json:"lastObservedTime"`
	} `json:"series"`
}

const (
	// maxAhead is how far a reporter's clock may run ahead of the API server's.
	maxAhead = 5 * time.Minute
	// maxLife is how long after its creation an Event may still occur that
	// does not say when it was last written.
	maxLife = 7 * 24 * time.Hour
)

// normalise makes the record of one version of an Event; its Occurrences are
// still to be set. It depends on nothing but its arguments.
func normalise(cluster string, raw []byte) (record.Record, record.EventKey, error) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return record.Record{}, record.EventKey{}, fmt.Errorf("decode an event: %w", err)
	}
	m := e.Metadata
	if m.UID == "" || m.ResourceVersion == "" {
		return record.Record{}, record.EventKey{}, errors.New("decode an event: it has no uid or no resourceVersion")
	}
	kept, err := withoutManagedFields(raw)
	if err != nil {
		return record.Record{}, record.EventKey{}, fmt.Errorf("decode event %s/%s: %w", m.Namespace, m.Name, err)
	}
	r := record.Record{
		Kind:      record.KindEvent,
		Cluster:   cluster,
		FirstTime: first(e.FirstTimestamp, e.EventTime, m.CreationTimestamp),
		LastTime:  latest(e.LastTimestamp, e.EventTime),
		Type:      clean(e.Type),
		Reason:    clean(e.Reason),
		Message:   clean(e.Message),
		Action:    clean(e.Action),
		Object: record.Object{
			APIVersion: clean(e.InvolvedObject.APIVersion), Kind: clean(e.InvolvedObject.Kind),
			Namespace: clean(e.InvolvedObject.Namespace), Name: clean(e.InvolvedObject.Name),
			UID: clean(e.InvolvedObject.UID), FieldPath: clean(e.InvolvedObject.FieldPath),
		},
		Source: record.Source{Component: clean(e.Source.Component), Host: clean(e.Source.Host)},
		Count:  max(e.Count, 1),
		Event:  record.Event{UID: m.UID, Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion},
		Raw:    kept,
	}
	if r.Source.Component == "" {
		r.Source.Component = clean(e.ReportingComponent)
	}
	if r.Source.Host == "" {
		r.Source.Host = clean(e.ReportingInstance)
	}
	if e.Series != nil {
		r.Count = max(r.Count, e.Series.Count)
		r.LastTime = latest(stamp{r.LastTime}, e.Series.LastObservedTime)
	}
	r.Time = e.effectiveTime(r.LastTime)
	r.ID = record.NewID("ev1", cluster, m.UID, m.ResourceVersion, strconv.FormatInt(r.Count, 10), strconv.FormatInt(r.Time.UnixNano(), 10))
	return r, record.EventKey{UID: m.UID, Created: m.CreationTimestamp.Time}, nil
}

// effectiveTime is the latest time that the Event tells. A time that lies
// ahead of the API server's own stamp of the update is a wrong clock; this
// one's clock must not judge, or a replay would give another answer.
func (e event) effectiveTime(last time.Time) time.Time {
	t := latest(stamp{last}, e.FirstTimestamp, e.Metadata.CreationTimestamp)
	var written time.Time
	for _, f := range e.Metadata.ManagedFields {
		written = latest(stamp{written}, f.Time)
	}
	bound := maxAhead
	if written.IsZero() {
		bound = maxLife
	}
	written = latest(stamp{written}, e.Metadata.CreationTimestamp)
	if !written.IsZero() && t.After(written.Add(bound)) {
		return written
	}
	return t
}

// occurrences is how many occurrences this version of an Event adds to what
// was seen of it before; with 0 it is no record. ok is false when nothing was.
func occurrences(r record.Record, seen record.Seen, ok bool) int64 {
	switch {
	case !ok:
		return r.Count
	case r.Event.ResourceVersion == seen.ResourceVersion:
		return 0
	case r.Count > seen.Count:
		return r.Count - seen.Count
	case r.Count == seen.Count && r.LastTime.After(seen.LastTime):
		return 1 // its author moves the time and does not count
	default:
		return 0 // an older version, or one with other metadata only
	}
}

// gap is the record of a watch that was away for longer than Events live.
// Its ID and time depend on where the watch had stood only.
func gap(p record.Position, now time.Time, ttl time.Duration) record.Record {
	away := now.Sub(p.At)
	return record.Record{
		ID:      record.NewID("gap1", p.Cluster, p.ResourceVersion, strconv.FormatInt(p.At.UnixNano(), 10)),
		Kind:    record.KindGap,
		Cluster: p.Cluster,
		Time:    p.At.UTC(),
		Type:    "Warning",
		Reason:  "EventsMissing",
		Message: fmt.Sprintf("events between %s and %s may be missing: the watch was away for %s, and this cluster keeps events for %s",
			p.At.UTC().Format(time.RFC3339), now.Add(-ttl).UTC().Format(time.RFC3339), away.Round(time.Second), ttl),
		LastTime: p.At.UTC(),
		Source:   record.Source{Component: "fleetwatch-eventsink"},
		Count:    1, Occurrences: 1,
	}
}

func withoutManagedFields(raw []byte) (json.RawMessage, error) {
	var object, metadata map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(object["metadata"], &metadata); err != nil {
		return nil, err
	}
	delete(metadata, "managedFields")
	var err error
	if object["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

func latest(stamps ...stamp) time.Time {
	var t time.Time
	for _, s := range stamps {
		if s.After(t) {
			t = s.Time
		}
	}
	return t
}

func first(stamps ...stamp) time.Time {
	for _, s := range stamps {
		if !s.IsZero() {
			return s.Time
		}
	}
	return time.Time{}
}

// clean keeps text to what every store can hold and search.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}
