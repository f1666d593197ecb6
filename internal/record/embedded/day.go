package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sqlite "modernc.org/sqlite"
)

// errGone says that the day file was removed or moved aside meanwhile.
var errGone = errors.New("the day file is gone")

// Primary result codes of SQLite.
const (
	codeCorrupt = 11
	codeFull    = 13
	codeNotADB  = 26
)

// day is one day file. SQLite must not see its file renamed or removed while
// a connection is open, so every use holds mu for reading.
type day struct {
	name string // 2026-11-30
	path string
	db   *sql.DB

	mu    sync.RWMutex
	gone  bool
	setup sync.Mutex // guards ready
	ready bool

	// Guarded by Store.mu. base is the last seq when this process first wrote
	// to the file, seq the last durable one; both -1 before.
	base, seq int64
}

func newDay(dir, name string) (*day, error) {
	path := filepath.Join(dir, name+".db")
	db, err := openDB(path, "FULL", 4)
	if err != nil {
		return nil, err
	}
	return &day{name: name, path: path, db: db, base: -1, seq: -1}, nil
}

// openDB prepares a pool; files are opened at first use and closed when idle.
func openDB(path, synchronous string, conns int) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("locate %s: %w", path, err)
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(" + synchronous + ")", "journal_size_limit(16777216)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(2)
	db.SetConnMaxIdleTime(time.Minute)
	return db, nil
}

// use calls fn with the open file, created when missing.
func (d *day) use(ctx context.Context, fn func(*sql.DB) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.gone {
		return errGone
	}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return fn(d.db)
}

// prepare creates the schema in a new file and refuses an unknown one.
func (d *day) prepare(ctx context.Context) error {
	d.setup.Lock()
	defer d.setup.Unlock()
	if d.ready {
		return nil
	}
	var v int
	if err := d.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return fmt.Errorf("open %s: %w", d.path, err)
	}
	switch v {
	case version:
	case 0:
		if err := d.create(ctx); err != nil {
			return fmt.Errorf("create %s: %w", d.path, err)
		}
	default:
		return fmt.Errorf("open %s: written by a newer Fleetwatch (format %d, this one knows %d); upgrade, or move the file away", d.path, v, version)
	}
	d.ready = true
	return nil
}

func (d *day) create(ctx context.Context) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // fails only after the commit
	if _, err := tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(d.path))
}

// close ends the use of the file, waiting for readers.
func (d *day) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return nil
	}
	d.gone = true
	return d.db.Close()
}

// files are the database and what SQLite keeps beside it.
func files(path string) []string { return []string{path, path + "-wal", path + "-shm"} }

// moveAside renames a closed database and returns its new path.
func moveAside(path string) (string, error) {
	for i := 1; i < 1000; i++ {
		aside := fmt.Sprintf("%s.corrupt-%d", path, i)
		if _, err := os.Lstat(aside); err == nil {
			continue
		}
		for _, f := range files(path) {
			if err := os.Rename(f, aside+strings.TrimPrefix(f, path)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
		}
		return aside, syncDir(filepath.Dir(path))
	}
	return "", fmt.Errorf("too many corrupt copies of %s; remove some", path)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func hasCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	for _, c := range codes {
		if e.Code()&0xff == c {
			return true
		}
	}
	return false
}
