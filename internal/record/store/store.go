// Package store is what every store of records promises, and the HTTP API
// over it. The implementations stand beside it; storetest checks the promises.
package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
)

// MaxLimit is the most records that one Search returns.
const MaxLimit = 1000

// ErrCursor says that Search.After did not come from this store.
var ErrCursor = errors.New("not a place that an earlier answer named in \"next\"; start again without it")

// Search asks for records.
type Search struct {
	// Clusters narrows the search to these; none means all.
	Clusters []string
	// Since is inclusive, Until exclusive; zero means open.
	Since, Until time.Time
	// Query narrows further; nil matches all.
	Query query.Expr
	// Limit bounds the answer: 1 to MaxLimit.
	Limit int
	// After continues where an earlier Page ended: its Next.
	After string
}

// Page is one answer.
type Page struct {
	// Items are the matching records, newest first.
	Items []record.Record `json:"items"`
	// Next continues the search; empty when there is no more.
	Next string `json:"next,omitempty"`
	// Unseen names what could not be searched, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// Searcher is the reading side of a store. Implementations allow concurrent
// use; returned records belong to the caller.
type Searcher interface {
	// Search returns the newest matching records. Paging with After neither
	// repeats nor leaves out a record that was stored before the first page.
	Search(ctx context.Context, s Search) (Page, error)
	// Follow emits the newest s.Limit matching records that are stored, oldest
	// first, then every matching record once it is durable, each once, until
	// ctx ends (which is no error) or emit fails. Until and After are ignored.
	// With a Limit of 0 it begins with the next record. A slow emit delays
	// nobody else and loses nothing that is still stored.
	Follow(ctx context.Context, s Search, emit func([]record.Record) error) error
}

// Match reports whether the record is among those that s asks for.
func (s Search) Match(r *record.Record) bool {
	if len(s.Clusters) > 0 && !slices.Contains(s.Clusters, r.Cluster) {
		return false
	}
	if !s.Since.IsZero() && r.Time.Before(s.Since) {
		return false
	}
	if !s.Until.IsZero() && !r.Time.Before(s.Until) {
		return false
	}
	return query.Match(s.Query, r)
}
