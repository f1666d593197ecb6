// Package record is the model of what Fleetwatch keeps for ever: one Record
// for each occurrence of a Kubernetes Event, and gap records for the times in
// which occurrences may have been missed.
//
// Invariants:
//   - An ID is a hash of immutable content. The same occurrence seen again,
//     through a retry, a relist or a restart, has the same ID, and a store
//     keeps the first record of an ID and ignores the rest.
//   - Time never depends on the clock of Fleetwatch, for it chooses the
//     partition in which the ID must be unique.
//   - The occurrences of the records of one Event add up to its count.
package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"
)

// Kinds of record.
const (
	// KindEvent is one occurrence, or several that arrived as one update.
	KindEvent = "event"
	// KindGap says that occurrences may be missing from here on; its message
	// says until when, and why.
	KindGap = "gap"
)

// ErrRelist is the answer of a store that has lost records which the cluster
// may still have: its position was not saved, and the cluster is to be listed.
var ErrRelist = errors.New("stored records were lost; the cluster is to be listed again")

// Record is one occurrence of an Event, or a gap.
type Record struct {
	ID      string `json:"id"`
	Kind    string `json:"record"`
	Cluster string `json:"cluster"`
	// Time is when it happened, as far as the Event tells; UTC.
	Time time.Time `json:"time"`
	// FirstTime and LastTime are as the Event's author set them.
	FirstTime time.Time `json:"first_time,omitzero"`
	LastTime  time.Time `json:"last_time,omitzero"`
	Type      string    `json:"type,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Action    string    `json:"action,omitempty"`
	Object    Object    `json:"object,omitzero"`
	Source    Source    `json:"source,omitzero"`
	// Count is the Event's own counter after this occurrence.
	Count int64 `json:"count"`
	// Occurrences is how much of Count this record stands for: 1 as a rule,
	// more when an update jumped.
	Occurrences int64 `json:"occurrences"`
	Event       Event `json:"event,omitzero"`
	// Raw is the Event as the API server sent it, without managed fields.
	Raw json.RawMessage `json:"raw,omitempty"`
}

// Object is what an Event is about.
type Object struct {
	APIVersion string `json:"api_version,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
	FieldPath  string `json:"field_path,omitempty"`
}

// Source is who reported an Event.
type Source struct {
	Component string `json:"component,omitempty"`
	Host      string `json:"host,omitempty"`
}

// Event identifies the Event object and the version of it that was seen.
type Event struct {
	UID             string `json:"uid,omitempty"`
	Name            string `json:"name,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	ResourceVersion string `json:"resource_version,omitempty"`
}

// EventKey names an Event for the question what was last seen of it.
type EventKey struct {
	UID string
	// Created bounds the search: no record of an Event is older than it.
	Created time.Time
}

// Seen is what the newest durable record of an Event says of it.
type Seen struct {
	Count           int64
	LastTime        time.Time
	ResourceVersion string
}

// Position is where the watch of one cluster stands: everything up to
// ResourceVersion is durable.
type Position struct {
	Cluster         string
	ResourceVersion string
	// At is when the watch was last known to be complete up to the present.
	At time.Time
}

// NewID hashes parts to 32 hex digits. Parts are length-prefixed, so that no
// two lists of parts collide by concatenation.
func NewID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
