package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Bounds of what is kept of a child's output.
const (
	maxLogMegabytes = 10
	maxLogBackups   = 1
	maxLineBytes    = 512
)

// output writes a child's output to its log file, remembers the last line and
// hands lines on.
type output struct {
	path string
	file *lumberjack.Logger
	each func(string)

	mu   sync.Mutex // guards line and last
	line []byte
	last string
}

func newOutput(dir string, spec Spec) (*output, error) {
	path := filepath.Join(dir, spec.Name+".log")
	// lumberjack opens lazily; a directory that cannot be written shall be
	// known before the child starts.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", spec.Name, err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", spec.Name, err)
	}
	return &output{
		path: path,
		file: &lumberjack.Logger{Filename: path, MaxSize: maxLogMegabytes, MaxBackups: maxLogBackups},
		each: spec.Output,
	}, nil
}

// Write never fails: a full disk must not take the child's output pipe, and
// with it the child, away.
func (o *output) Write(p []byte) (int, error) {
	_, _ = o.file.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := p
	for {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		o.keep(rest[:i])
		rest = rest[i+1:]
		if len(o.line) > 0 {
			o.last = string(o.line)
			if o.each != nil {
				o.each(o.last)
			}
		}
		o.line = o.line[:0]
	}
	o.keep(rest)
	return len(p), nil
}

func (o *output) keep(b []byte) {
	room := maxLineBytes - len(o.line)
	o.line = append(o.line, b[:min(len(b), max(room, 0))]...)
}

func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

func (o *output) Close() { _ = o.file.Close() }
