package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// checkTimeout bounds the check of a file at its opening.
const checkTimeout = 3 * time.Second

// unsoundError is what SQLite's own check has found.
type unsoundError struct{ finding string }

func (e unsoundError) Error() string { return "the file is corrupt: " + e.finding }

// isCorrupt says that a file cannot be used as it is, now or later.
func isCorrupt(err error) bool {
	_, unsound := errors.AsType[unsoundError](err)
	return unsound || hasCode(err, codeCorrupt, codeNotADB)
}

// check looks at every page of the file, as far as the time allows.
func check(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	var finding string
	err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&finding)
	switch {
	case ctx.Err() != nil:
		return nil // too big to be checked now; trouble shows when it is met
	case err != nil:
		return err
	case finding != "ok":
		return unsoundError{finding}
	}
	return nil
}

func (s *Store) statePath() string { return filepath.Join(s.cfg.Dir, "state.db") }

// openState opens the positions. They can be rebuilt by a relist, so a
// corrupt file is moved aside, and commits need not be fsynced: a position
// that is lost or old costs a replay only. The caller holds stateMu, or is
// Open.
func (s *Store) openState() error {
	path := s.statePath()
	for attempt := 0; ; attempt++ {
		db, err := openDB(path, "NORMAL", 1)
		if err != nil {
			return err
		}
		if err = check(db); err == nil {
			_, err = db.ExecContext(context.Background(), `CREATE TABLE IF NOT EXISTS positions (
				cluster TEXT PRIMARY KEY, resource_version TEXT NOT NULL, at INTEGER NOT NULL)`)
		}
		if err == nil {
			s.state = db
			return nil
		}
		err = errors.Join(err, db.Close())
		if !isCorrupt(err) || attempt > 0 {
			return fmt.Errorf("open %s: %w; check the disk, the permissions and that no other Fleetwatch uses the directory", path, err)
		}
		if err := s.moveState(err); err != nil {
			return err
		}
	}
}

// moveState moves the closed file of positions aside.
func (s *Store) moveState(cause error) error {
	aside, err := moveAside(s.statePath())
	if err != nil {
		return fmt.Errorf("move the corrupt %s aside: %w", s.statePath(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quarantined = append(s.quarantined, aside)
	s.metrics.quarantined.Set(float64(len(s.quarantined)))
	s.log.Error("position file is corrupt and was moved aside; clusters without a position are listed again", "path", aside, "err", cause)
	return nil
}

// withState calls fn with the file of positions; when that is corrupt it is
// replaced by an empty one and fn is called again. The caller holds stateMu.
func (s *Store) withState(fn func(*sql.DB) error) error {
	if s.state == nil { // it could not be opened again after a repair
		if err := s.openState(); err != nil {
			return err
		}
	}
	err := fn(s.state)
	if !isCorrupt(err) {
		return err
	}
	_ = s.state.Close() // it is given up
	s.state = nil
	if err := s.moveState(err); err != nil {
		return err
	}
	if err := s.openState(); err != nil {
		return err
	}
	return fn(s.state)
}

// Position returns where the watch of a cluster stands; ok is false when it
// never stood anywhere, or records were lost that the cluster may still have.
func (s *Store) Position(ctx context.Context, cluster string) (p record.Position, ok bool, err error) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	p.Cluster = cluster
	var at int64
	err = s.withState(func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT resource_version, at FROM positions WHERE cluster = ?", cluster).Scan(&p.ResourceVersion, &at)
	})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, false, fmt.Errorf("read the position of %s: %w", cluster, err)
	}
	s.told[cluster] = s.epoch
	if err != nil {
		return p, false, nil //nolint:nilerr // no rows
	}
	p.At = fromNanos(at)
	return p, true, nil
}

// writePositions saves the positions of the group. A position that builds on
// one from before the loss of records is not saved: it ends in ErrRelist.
func (s *Store) writePositions(ctx context.Context, group []*pending) error {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	var positions []record.Position
	var stale error
	for _, p := range group {
		if p.position.Cluster == "" {
			continue
		}
		if epoch, ok := s.told[p.position.Cluster]; ok && epoch != s.epoch {
			stale = fmt.Errorf("position of %s: %w", p.position.Cluster, record.ErrRelist)
			continue
		}
		positions = append(positions, p.position)
	}
	if len(positions) == 0 {
		return stale
	}
	err := s.withState(func(db *sql.DB) error { return savePositions(ctx, db, positions) })
	return errors.Join(err, stale)
}

func savePositions(ctx context.Context, db *sql.DB, positions []record.Position) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // fails only after the commit
	for _, p := range positions {
		_, err := tx.ExecContext(ctx, `INSERT INTO positions (cluster, resource_version, at) VALUES (?, ?, ?)
			ON CONFLICT (cluster) DO UPDATE SET resource_version = excluded.resource_version, at = excluded.at`,
			p.Cluster, p.ResourceVersion, nanos(p.At))
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// forget drops every position, so that each cluster is listed again and what
// it still has is stored again. It returns the clusters that had one.
func (s *Store) forget() (clusters []string, err error) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.epoch++
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	err = s.withState(func(db *sql.DB) error {
		clusters = nil
		rows, err := db.QueryContext(ctx, "DELETE FROM positions RETURNING cluster")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var c string
			if err := rows.Scan(&c); err != nil {
				return err
			}
			clusters = append(clusters, c)
		}
		return rows.Err()
	})
	return clusters, err
}
