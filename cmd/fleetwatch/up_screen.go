package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen shows the view: on a terminal redrawn in place, elsewhere printed once
// and then one line for whatever changes.
type screen struct {
	out      io.Writer
	view     func() view
	terminal bool
	size     func() (width, height int)
}

func newScreen(out io.Writer, v func() view) *screen {
	s := &screen{out: out, view: v}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal = true
		s.size = func() (int, int) {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
				return w, h
			}
			return 80, 24
		}
	}
	return s
}

// run draws until ctx ends and returns its cause.
func (s *screen) run(ctx context.Context) error {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	previous := s.view()
	s.draw(previous)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		next := s.view()
		if s.terminal {
			s.draw(next)
		} else {
			for _, line := range changes(previous, next) {
				fmt.Fprintf(s.out, "%s  %s\n", next.now.Format("15:04:05"), oneLine(line))
			}
		}
		previous = next
	}
}

func (s *screen) draw(v view) {
	var b bytes.Buffer
	v.render(&b)
	if s.terminal {
		width, height := s.size()
		const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
		lines := fit(strings.Split(strings.TrimRight(b.String(), "\n"), "\n"), width, height)
		b.Reset()
		b.WriteString(home)
		for _, line := range lines {
			b.WriteString(line + clearLine + "\n")
		}
		b.WriteString(clearBelow)
	} else {
		b.WriteString("\n")
	}
	_, _ = s.out.Write(b.Bytes()) // nobody to tell when the terminal is gone
}

// fit makes lines fit a terminal, so that redrawing never scrolls: each is cut
// to the width, and what is too much is left out of the middle, where the long
// lists are, since the end has the warnings.
func fit(lines []string, width, height int) []string {
	if room := height - 1; len(lines) > room && room >= 8 {
		tail := min(len(lines)/2, room/2)
		head := room - tail - 1
		cut := append(slices.Clone(lines[:head]), fmt.Sprintf("... %d more lines on a taller terminal, or at the Fleetwatch URL", len(lines)-head-tail))
		lines = append(cut, lines[len(lines)-tail:]...)
	}
	short := make([]string, len(lines))
	for i, line := range lines {
		if r := []rune(line); len(r) > width {
			line = string(r[:width-1]) + "…"
		}
		short[i] = line
	}
	return short
}

// changes says in a line each what is different in the world between two views;
// numbers that move all the time are not worth a line.
func changes(before, after view) []string {
	var lines []string
	was := map[string]string{}
	for _, c := range before.clusters {
		was["cluster "+c.id] = withReason(c.state, c.reason)
	}
	for _, s := range before.shards {
		was[s.name] = withReason(s.state, s.reason)
	}
	add := func(what, state string) {
		if was[what] != state {
			lines = append(lines, what+" is "+state)
		}
	}
	for _, c := range after.clusters {
		add("cluster "+c.id, withReason(c.state, c.reason))
	}
	for _, s := range after.shards {
		add(s.name, withReason(s.state, s.reason))
	}
	if after.verdict.verdict != before.verdict.verdict || after.verdict.summary != before.verdict.summary {
		lines = append(lines, "verdict "+after.verdict.verdict+": "+after.verdict.summary)
	}
	known := map[string]bool{}
	for _, t := range before.troubles {
		known[t] = true
	}
	for _, t := range after.troubles {
		if !known[t] {
			lines = append(lines, t)
		}
	}
	return lines
}
