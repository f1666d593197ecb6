package embedded

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
)

// with calls fn with a day's file and moves the file aside when it is corrupt.
func (s *Store) with(ctx context.Context, d *day, fn func(*sql.DB) error) error {
	err := d.use(ctx, fn)
	if isCorrupt(err) {
		s.quarantine(d, err)
	}
	return err
}

// quarantine moves a corrupt day file aside and has every cluster listed
// again, since its API server may still have some of what was lost; the rest
// is told by gap records and by Page.Unseen.
func (s *Store) quarantine(d *day, cause error) {
	if err := d.close(); err != nil {
		s.log.Warn("corrupt day file did not close cleanly", "path", d.path, "err", err)
	}
	if s.current(d.name) != d {
		return // somebody else was first
	}
	// First the positions: a crash in between costs one more list.
	clusters, err := s.forget()
	if err != nil {
		s.log.Error("positions could not be dropped", "path", s.statePath(), "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.days[d.name] != d {
		return
	}
	aside, err := moveAside(d.path)
	if err != nil {
		s.log.Error("corrupt day file could not be moved aside", "path", d.path, "err", err)
		return // stays in the map, closed: reported as unseen, not written to
	}
	delete(s.days, d.name)
	s.quarantined = append(s.quarantined, aside)
	s.metrics.quarantined.Set(float64(len(s.quarantined)))
	for _, c := range clusters {
		s.gaps = append(s.gaps, lostDay(c, d.name, filepath.Base(aside)))
	}
	s.log.Error("day file is corrupt and was moved aside; every cluster is listed again", "path", aside, "err", cause)
}

func (s *Store) current(name string) *day {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.days[name]
}

// lostDay is the gap record of one cluster for a day whose file was lost.
func lostDay(cluster, name, aside string) record.Record {
	at, _ := time.Parse(time.DateOnly, name) // it was parsed when the file was found or made
	return record.Record{
		ID: record.NewID("gap2", cluster, aside), Kind: record.KindGap, Cluster: cluster, Time: at, LastTime: at,
		Type: "Warning", Reason: "EventsMissing",
		Message: fmt.Sprintf("events of %s may be missing: the day file was corrupt and was moved aside to %s; what the cluster still had was stored again", name, aside),
		Source:  record.Source{Component: "fleetwatch-recordstore"}, Count: 1, Occurrences: 1,
	}
}

// takeGaps hands over the gap records that wait for a commit.
func (s *Store) takeGaps() []record.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	gaps := s.gaps
	s.gaps = nil
	return gaps
}

// putGaps keeps what could not be written for the next commit.
func (s *Store) putGaps(gaps []record.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = append(s.gaps, gaps...)
}

// unseen names the days from lo to hi that were moved aside, within the
// retention and as long as the file is there.
func (s *Store) unseen(lo, hi int64) (list []string) {
	s.mu.Lock()
	paths := append([]string(nil), s.quarantined...)
	s.mu.Unlock()
	oldest := s.oldestKept()
	for _, path := range paths {
		name, _, _ := strings.Cut(filepath.Base(path), ".db.corrupt-")
		if _, err := time.Parse(time.DateOnly, name); err != nil || name < oldest || !(&day{name: name}).overlaps(lo, hi) {
			continue
		}
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		list = append(list, fmt.Sprintf("%s: records may be missing, for a corrupt file was moved aside to %s; remove that file to end this notice", name, path))
	}
	return list
}
