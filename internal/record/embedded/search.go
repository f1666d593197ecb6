package embedded

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

var _ store.Searcher = (*Store)(nil)

// Seen returns, for each of the Events that has a record, what the newest one
// says.
func (s *Store) Seen(ctx context.Context, cluster string, events []record.EventKey) (map[string]record.Seen, error) {
	seen := make(map[string]record.Seen)
	for _, d := range s.sorted() {
		var ask []string
		for _, e := range events {
			_, found := seen[e.UID]
			if !found && d.name >= e.Created.UTC().Format(time.DateOnly) {
				ask = append(ask, e.UID)
			}
		}
		if len(ask) == 0 {
			continue
		}
		err := s.with(ctx, d, func(db *sql.DB) error { return lookUp(ctx, db, cluster, ask, seen) })
		if err != nil && !errors.Is(err, errGone) && !isCorrupt(err) {
			return nil, fmt.Errorf("look up events in %s: %w", d.name, err)
		}
	}
	return seen, nil
}

func lookUp(ctx context.Context, db *sql.DB, cluster string, uids []string, seen map[string]record.Seen) error {
	stmt, err := db.PrepareContext(ctx, selectSeen)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }() // it only reads
	for _, uid := range uids {
		var sn record.Seen
		var at int64
		switch err := stmt.QueryRowContext(ctx, uid, cluster).Scan(&sn.Count, &at, &sn.ResourceVersion); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		default:
			sn.LastTime = fromNanos(at)
			seen[uid] = sn
		}
	}
	return nil
}

// cursor is the place of a record in the order of Search.
type cursor struct{ time, seq int64 }

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "e1.%d.%d", c.time, c.seq))
}

func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{math.MaxInt64, math.MaxInt64}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.Split(string(b), ".")
	if err != nil || len(parts) != 3 || parts[0] != "e1" {
		return cursor{}, store.ErrCursor
	}
	at, err1 := strconv.ParseInt(parts[1], 10, 64)
	seq, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil {
		return cursor{}, store.ErrCursor
	}
	return cursor{at, seq}, nil
}

// Search implements store.Searcher.
func (s *Store) Search(ctx context.Context, q store.Search) (store.Page, error) {
	page := store.Page{Items: []record.Record{}}
	if q.Limit < 1 || q.Limit > store.MaxLimit {
		return page, fmt.Errorf("search: limit is %d, want 1 to %d", q.Limit, store.MaxLimit)
	}
	after, err := parseCursor(q.After)
	if err != nil {
		return page, err
	}
	lo, hi := int64(math.MinInt64), after.time
	if !q.Since.IsZero() {
		lo = q.Since.UnixNano()
	}
	if !q.Until.IsZero() {
		hi = min(hi, q.Until.UnixNano()-1)
	}
	cond, args := compile(q.Query)
	if len(q.Clusters) > 0 {
		cond += " AND cluster COLLATE BINARY IN (?" + strings.Repeat(",?", len(q.Clusters)-1) + ")"
		for _, c := range q.Clusters {
			args = append(args, c)
		}
	}
	var last cursor
	for _, d := range s.sorted() {
		if !d.overlaps(lo, hi) {
			continue
		}
		text := "SELECT seq, " + columns + " FROM records WHERE time BETWEEN ? AND ? AND (time, seq) < (?, ?) AND " + cond +
			" ORDER BY time DESC, seq DESC LIMIT ?"
		all := append([]any{lo, hi, after.time, after.seq}, args...)
		all = append(all, q.Limit+1-len(page.Items))
		err := s.with(ctx, d, func(db *sql.DB) error {
			return collect(ctx, db, text, all, func(seq int64, r record.Record) {
				if len(page.Items) == q.Limit {
					page.Next = last.String()
					return
				}
				page.Items = append(page.Items, r)
				last = cursor{r.Time.UnixNano(), seq}
			})
		})
		if ctx.Err() != nil {
			return page, fmt.Errorf("search: %w", context.Cause(ctx))
		}
		if err != nil {
			page.Unseen = append(page.Unseen, fmt.Sprintf("%s: %v", d.name, err))
		}
		if page.Next != "" {
			break
		}
	}
	// After the search, which may have met a corrupt file itself.
	for _, u := range s.unseen(lo, hi) {
		day, _, _ := strings.Cut(u, ":")
		page.Unseen = slices.DeleteFunc(page.Unseen, func(have string) bool { return strings.HasPrefix(have, day+":") })
		page.Unseen = append(page.Unseen, u)
	}
	return page, nil
}

// overlaps reports whether the day holds times from lo to hi.
func (d *day) overlaps(lo, hi int64) bool {
	start, err := time.Parse(time.DateOnly, d.name)
	if err != nil {
		return false
	}
	return start.UnixNano() <= hi && lo < start.AddDate(0, 0, 1).UnixNano()
}

func collect(ctx context.Context, db *sql.DB, text string, args []any, add func(int64, record.Record)) error {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		seq, r, err := scan(rows)
		if err != nil {
			return err
		}
		add(seq, r)
	}
	return rows.Err()
}
