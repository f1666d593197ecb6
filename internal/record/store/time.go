package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseTime reads a point in time as people give it: a duration back from now
// (90m, 2h, 7d), an RFC 3339 time, or a day, which begins at midnight UTC.
// Empty text is the zero time.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && inRange(t) {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil && inRange(t) {
		return t, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && 0 <= n && n <= 36500 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("want a duration such as 1h or 7d, or a time such as 2026-11-30T10:00:00Z, got %q", text)
}

// inRange says whether the time can be told in nanoseconds.
func inRange(t time.Time) bool { return 1678 < t.Year() && t.Year() < 2262 }
