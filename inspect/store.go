package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetwatch-io/fleetwatch/internal/durable"
)

// keepReports is how many reports a Store keeps; the oldest go first.
const keepReports = 50

// ErrNoReport is returned for an ID that the store does not hold.
var ErrNoReport = errors.New("no such inspection")

// Summary is a report without its details.
type Summary struct {
	ID       string             `json:"id"`
	Started  time.Time          `json:"started"`
	Finished time.Time          `json:"finished"`
	Verdict  Verdict            `json:"verdict"`
	Reasons  []string           `json:"reasons,omitempty"`
	Clusters map[string]Verdict `json:"clusters"`
}

// Summary leaves the details out.
func (r *Report) Summary() Summary {
	summary := Summary{
		ID: r.ID, Started: r.Started, Finished: r.Finished, Verdict: r.Verdict, Reasons: r.Reasons, Clusters: map[string]Verdict{},
	}
	for _, cluster := range r.Clusters {
		summary.Clusters[cluster.Cluster] = cluster.Verdict
	}
	return summary
}

// Store keeps the last reports as JSON files in a directory that it owns. It
// is safe for concurrent use.
type Store struct {
	dir string
	log *slog.Logger

	mu        sync.Mutex
	summaries []Summary // newest first
}

// NewStore opens the directory, which it makes when it is missing, and reads
// what is there. A file that cannot be read is left alone and logged.
func NewStore(dir string, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("open the inspection store: %w; choose another place with --data-dir", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the inspection store: %w", err)
	}
	s := &Store{dir: dir, log: log}
	for _, entry := range entries {
		id, isReport := strings.CutSuffix(entry.Name(), ".json")
		if !isReport || !validID.MatchString(id) {
			continue
		}
		report, err := s.Get(id)
		if err != nil {
			log.Warn("stored inspection is not readable", "file", entry.Name(), "err", err)
			continue
		}
		s.summaries = append(s.summaries, report.Summary())
	}
	slices.SortFunc(s.summaries, newestFirst)
	return s, nil
}

func newestFirst(a, b Summary) int { return strings.Compare(b.ID, a.ID) }

var validID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z$`)

// Save writes a report, whole or not at all, and drops the oldest ones.
func (s *Store) Save(report *Report) error {
	if !validID.MatchString(report.ID) {
		return fmt.Errorf("save inspection: %q is not an id", report.ID)
	}
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("save inspection: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := durable.WriteFile(s.path(report.ID), text, 0o640); err != nil {
		return fmt.Errorf("save inspection: %w", err)
	}
	s.summaries = slices.DeleteFunc(s.summaries, func(known Summary) bool { return known.ID == report.ID })
	s.summaries = append(s.summaries, report.Summary())
	slices.SortFunc(s.summaries, newestFirst)
	for len(s.summaries) > keepReports {
		oldest := s.summaries[len(s.summaries)-1]
		if err := os.Remove(s.path(oldest.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop an old inspection: %w", err)
		}
		s.summaries = s.summaries[:len(s.summaries)-1]
	}
	return nil
}

// List returns the summaries, the newest first.
func (s *Store) List() []Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.summaries)
}

// Latest returns the newest summary; ok is false when there is none.
func (s *Store) Latest() (summary Summary, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.summaries) == 0 {
		return Summary{}, false
	}
	return s.summaries[0], true
}

// Get reads one report. The error is ErrNoReport when the id is not known.
func (s *Store) Get(id string) (*Report, error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("%w: %q", ErrNoReport, id)
	}
	text, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoReport, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read inspection %s: %w", id, err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read inspection %s: %w", id, err)
	}
	if report.Schema != Schema || report.ID != id {
		return nil, fmt.Errorf("read inspection %s: the file holds schema %q, id %q", id, report.Schema, report.ID)
	}
	return &report, nil
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".json") }
