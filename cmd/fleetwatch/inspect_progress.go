package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
)

// inspectProgress says every few seconds how far each cluster has been read.
type inspectProgress struct {
	w     io.Writer
	names []string

	mu   sync.Mutex
	last map[string]snapshot.Progress
}

func newInspectProgress(w io.Writer, sources []inspect.Source) *inspectProgress {
	p := &inspectProgress{w: w, last: map[string]snapshot.Progress{}}
	for _, source := range sources {
		p.names = append(p.names, source.Name)
	}
	return p
}

func (p *inspectProgress) read(progress snapshot.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[progress.Cluster] = progress
}

// start prints until the returned function is called; that function waits
// until nothing more is printed.
func (p *inspectProgress) start() (stop func()) {
	fmt.Fprintf(p.w, "inspecting %s\n", strings.Join(p.names, ", "))
	ticker := time.NewTicker(3 * time.Second)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				fmt.Fprintln(p.w, p.line())
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

func (p *inspectProgress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var parts []string
	for _, name := range p.names {
		progress, ok := p.last[name]
		if !ok {
			parts = append(parts, name+": waiting for an answer")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s: %d of %d reads", name, progress.Done, progress.Total))
	}
	return "  " + strings.Join(parts, ", ")
}
