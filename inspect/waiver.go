package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
)

// MaxWaiver is the longest time for which a waiver may be given.
const MaxWaiver = 30 * 24 * time.Hour

// waiverFileLimit bounds a waiver file.
const waiverFileLimit = 1 << 20

// Waiver accepts findings of one check for a while.
type Waiver struct {
	Check string `json:"check" yaml:"check"`
	// Cluster and Object are patterns in which * stands for anything but a
	// slash. Object is matched with Kind/namespace/name or Kind/name.
	Cluster string    `json:"cluster" yaml:"cluster"`
	Object  string    `json:"object" yaml:"object"`
	Reason  string    `json:"reason" yaml:"reason"`
	Owner   string    `json:"owner" yaml:"owner"`
	Expires time.Time `json:"expires" yaml:"-"`
}

// WaiverUse says what became of a waiver in an inspection.
type WaiverUse struct {
	Waiver
	// Expired waivers count for nothing.
	Expired bool `json:"expired,omitempty"`
	// Matched is how many findings it covers.
	Matched int `json:"matched"`
}

// LoadWaivers reads a waiver file. Every mistake in it is reported, and a file
// with a mistake is not used at all.
func LoadWaivers(file string, now time.Time) ([]Waiver, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read waivers: %w", err)
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, waiverFileLimit+1))
	if err != nil {
		return nil, fmt.Errorf("read waivers %s: %w", file, err)
	}
	if len(text) > waiverFileLimit {
		return nil, fmt.Errorf("read waivers %s: longer than %d bytes", file, waiverFileLimit)
	}
	waivers, err := ParseWaivers(text, now)
	if err != nil {
		return nil, fmt.Errorf("waivers %s: %w", file, err)
	}
	return waivers, nil
}

// ParseWaivers reads the YAML of a waiver file: a mapping with one key,
// waivers, that holds a list.
func ParseWaivers(text []byte, now time.Time) ([]Waiver, error) {
	var file struct {
		Waivers []struct {
			Waiver  `yaml:",inline"`
			Expires string `yaml:"expires"`
		} `yaml:"waivers"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one YAML document, found more after ---")
	}
	var waivers []Waiver
	var mistakes []error
	for i, entry := range file.Waivers {
		waiver := entry.Waiver
		until, err := parseExpiry(entry.Expires)
		waiver.Expires = until
		if err = errors.Join(err, waiver.validate(now)); err != nil {
			mistakes = append(mistakes, fmt.Errorf("waiver %d (%s): %w", i+1, waiver.Check, err))
		}
		waivers = append(waivers, waiver)
	}
	return waivers, errors.Join(mistakes...)
}

func parseExpiry(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.Add(24*time.Hour - time.Second), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("expires: want a date such as 2026-12-24 or a time such as 2026-12-24T08:00:00Z, got %q", text)
	}
	return at.UTC(), nil
}

func (w *Waiver) validate(now time.Time) error {
	var mistakes []error
	if !slices.ContainsFunc(checks.Catalogue(), func(c checks.Check) bool { return c.ID == w.Check }) {
		mistakes = append(mistakes, fmt.Errorf("check: no check %q; see fleetwatch inspect checks list", w.Check))
	}
	for _, field := range []struct{ name, value string }{
		{"cluster", w.Cluster}, {"object", w.Object}, {"reason", w.Reason}, {"owner", w.Owner},
	} {
		if field.value == "" {
			mistakes = append(mistakes, fmt.Errorf("%s: must be set", field.name))
		}
	}
	for _, field := range []struct{ name, pattern string }{{"cluster", w.Cluster}, {"object", w.Object}} {
		if _, err := path.Match(field.pattern, "x"); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %q is not a pattern: %w", field.name, field.pattern, err))
		}
	}
	if w.Expires.Sub(now) > MaxWaiver {
		mistakes = append(mistakes, fmt.Errorf("expires: %s is more than 30 days ahead; choose an earlier date and renew it", w.Expires.Format(time.DateOnly)))
	}
	return errors.Join(mistakes...)
}

// waiverSet counts how often each waiver is used.
type waiverSet struct {
	uses []WaiverUse
}

func newWaiverSet(waivers []Waiver, now time.Time) *waiverSet {
	set := &waiverSet{}
	for _, waiver := range waivers {
		set.uses = append(set.uses, WaiverUse{Waiver: waiver, Expired: !now.Before(waiver.Expires)})
	}
	return set
}

// match returns the first waiver in force that covers a finding, or nil.
func (s *waiverSet) match(check, cluster string, object checks.Object) *Waiver {
	for i := range s.uses {
		use := &s.uses[i]
		if use.Check != check || !matches(use.Cluster, cluster) || !matches(use.Object, object.Path()) {
			continue
		}
		use.Matched++
		if !use.Expired {
			waiver := use.Waiver
			return &waiver
		}
	}
	return nil
}

func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return err == nil && ok
}
