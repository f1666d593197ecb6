package shard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/prometheus/prometheus/storage"
)

// roomToOpen is what must be free besides the largest segment of the
// write-ahead log before the database is opened.
const roomToOpen = 16 << 20

// StorageError says that a shard stores nothing, and what to do about it.
type StorageError struct {
	Dir   string
	Cause error
}

func (e *StorageError) Error() string {
	if errors.Is(e.Cause, syscall.ENOSPC) || errors.Is(e.Cause, syscall.EDQUOT) {
		return fmt.Sprintf("is not storing: no space left in %s; free some", e.Dir)
	}
	return fmt.Sprintf("is not storing: cannot write to %s: %v; check the disk", e.Dir, e.Cause)
}

func (e *StorageError) Unwrap() error { return e.Cause }

// guard passes appenders of a database on and notices when one of them cannot
// be written to the write-ahead log. After that the log may hold a part of a
// record: all that follows it would be dropped at the next start, so that the
// shard has to end at once.
type guard struct {
	storage.AppendableV2
	dir    string
	once   sync.Once
	failed chan struct{} // closed by the first failure, after err is set
	err    *StorageError
}

func newGuard(db storage.AppendableV2, dir string) *guard {
	return &guard{AppendableV2: db, dir: dir, failed: make(chan struct{})}
}

// check gives the failure, nil while there is none.
func (g *guard) check() *StorageError {
	select {
	case <-g.failed:
		return g.err
	default:
		return nil
	}
}

func (g *guard) note(err error) error {
	if _, system := errors.AsType[syscall.Errno](err); system {
		g.once.Do(func() {
			g.err = &StorageError{Dir: g.dir, Cause: err}
			close(g.failed)
		})
	}
	return err
}

func (g *guard) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return &guardedAppender{AppenderV2: g.AppendableV2.AppenderV2(ctx), guard: g}
}

type guardedAppender struct {
	storage.AppenderV2
	guard *guard
}

func (a *guardedAppender) Commit() error   { return a.guard.note(a.AppenderV2.Commit()) }
func (a *guardedAppender) Rollback() error { return a.guard.note(a.AppenderV2.Rollback()) }

// segments are the numbers and sizes of the segments of a write-ahead log.
func segments(wal string) (map[int]int64, error) {
	entries, err := os.ReadDir(wal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the write-ahead log: %w", err)
	}
	out := make(map[int]int64, len(entries))
	for _, entry := range entries {
		n, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // a checkpoint, or what a repair left
		}
		info, err := entry.Info()
		if err != nil {
			return nil, fmt.Errorf("read the write-ahead log: %w", err)
		}
		out[n] = info.Size()
	}
	return out, nil
}

// roomFor checks that the database below tsdbDir can be opened: to repair the
// log, the database writes one segment a second time, and loses the segment
// when there is no room for it.
func roomFor(tsdbDir string, free func(string) (uint64, error)) error {
	sizes, err := segments(filepath.Join(tsdbDir, "wal"))
	if err != nil {
		return err
	}
	need := uint64(roomToOpen)
	for _, size := range sizes {
		need = max(need, roomToOpen+uint64(max(0, size)))
	}
	have, err := free(tsdbDir)
	if err != nil {
		return fmt.Errorf("read the free space of %s: %w", tsdbDir, err)
	}
	if have < need {
		return &StorageError{Dir: tsdbDir, Cause: fmt.Errorf("%d bytes free, %d needed to open: %w", have, need, syscall.ENOSPC)}
	}
	return nil
}

// freeSpace is what may still be written below dir.
func freeSpace(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil //nolint:gosec // a block size is positive
}

// undoRepair puts back the segment that an unfinished repair of the log has
// set aside, so that the next repair starts from all of it. It gives the names
// of what it put back. A segment that later ones followed stays aside.
func undoRepair(tsdbDir string) ([]string, error) {
	wal := filepath.Join(tsdbDir, "wal")
	aside, err := filepath.Glob(filepath.Join(wal, "*.repair"))
	if err != nil || len(aside) == 0 {
		return nil, err
	}
	sizes, err := segments(wal)
	if err != nil {
		return nil, err
	}
	slices.Sort(aside)
	var back []string
	for _, from := range aside {
		to := strings.TrimSuffix(from, ".repair")
		n, err := strconv.Atoi(filepath.Base(to))
		if err != nil {
			continue
		}
		followed := false
		for other, size := range sizes {
			followed = followed || (other > n && size > 0)
		}
		if followed {
			continue
		}
		if err := os.Rename(from, to); err != nil {
			return back, fmt.Errorf("put back %s: %w", to, err)
		}
		back = append(back, filepath.Base(to))
	}
	return back, nil
}
