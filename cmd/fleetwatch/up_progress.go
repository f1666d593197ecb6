package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// quiet is the longest time that a start may print nothing.
const quiet = 4 * time.Second

// progress tells on a terminal what a start is doing.
type progress struct {
	w     io.Writer
	began time.Time

	mu   sync.Mutex // one line at a time; guards said
	said time.Time
}

func newProgress(w io.Writer) *progress {
	now := time.Now()
	return &progress{w: w, began: now, said: now}
}

func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = time.Now()
	fmt.Fprintf(p.w, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// silence is how long nothing was said.
func (p *progress) silence() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.said)
}

// await polls until done or ctx ends, and says at least every four seconds what
// it is waiting for. poll returns what is still missing.
func (p *progress) await(ctx context.Context, what string, every time.Duration, poll func(context.Context) (done bool, missing string)) error {
	began := time.Now()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		done, missing := poll(ctx)
		if done {
			p.line("%s: ready after %.1f s", what, time.Since(began).Seconds())
			return nil
		}
		if p.silence() >= quiet-every {
			p.line("%s: waiting for %s", what, missing)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
