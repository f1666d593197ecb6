package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fleetwatch-io/fleetwatch/internal/record"
	"github.com/fleetwatch-io/fleetwatch/internal/record/query"
	"github.com/fleetwatch-io/fleetwatch/internal/record/store"
)

// maxEvents bounds --limit: all of them are held to be printed in order.
const maxEvents = 100_000

type eventsOptions struct {
	server   string
	clusters []string
	since    string
	until    string
	query    string
	limit    int
	output   outputFormat
	follow   bool
	stdout   io.Writer
	stderr   io.Writer
}

func newEventsCommand() *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show the events of the fleet, also those that the clusters have forgotten",
		Long: `Show the events of every cluster that a running Fleetwatch has kept, one for each
occurrence, oldest first. With -f new ones follow as they come.

The query language is a subset of Lucene's:
  reason:BackOff AND kind:Pod          field equals; letter case is ignored
  name:web-* NOT type:Normal           * stands for any run of characters
  reason:(BackOff OR Failed)           a field over a group
  back-off "restarting failed"         words and phrases of the message
  count:>3 occurrences:[2 TO 10]       numbers
  time:>=2026-11-30T10:00:00Z          times; 2026-11-30 is the whole day
  namespace:*                          the field is not empty
The fields are ` + fieldList() + `.`,
		Example: `  fleetwatch events --since 1h
  fleetwatch events --cluster a --query 'reason:BackOff AND kind:Pod' -o json
  fleetwatch events -f --query 'type:Warning'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stdout, o.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return interactive(cmd.Context(), o.run)
		},
	}
	serverFlag(cmd, &o.server)
	outputFlag(cmd, &o.output)
	f := cmd.Flags()
	f.StringArrayVar(&o.clusters, "cluster", nil, "events of this `CLUSTER` only; may be repeated (default all)")
	f.StringVar(&o.since, "since", "", "events from this `TIME` on: 1h, 7d, 2026-11-30 or 2026-11-30T10:00:00Z")
	f.StringVar(&o.until, "until", "", "events before this `TIME`")
	f.StringVar(&o.query, "query", "", "events that match this `QUERY` only")
	f.IntVar(&o.limit, "limit", 100, "the newest `N` events; 0 with -f shows new ones only")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with new events until Ctrl-C")
	return cmd
}

func fieldList() string {
	var b strings.Builder
	for i, f := range query.Fields() {
		switch {
		case i > 0 && i%9 == 0:
			b.WriteString(",\n")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(f.Name)
	}
	return b.String()
}

// parameters checks the flags and turns them into those of the API. Times are
// fixed here, so that all pages ask for the same.
func (o *eventsOptions) parameters() (url.Values, error) {
	v := url.Values{"cluster": o.clusters}
	now := time.Now()
	times := map[string]time.Time{}
	for flag, text := range map[string]string{"since": o.since, "until": o.until} {
		t, err := store.ParseTime(text, now)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		if !t.IsZero() {
			times[flag] = t
			v.Set(flag, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if since, until := times["since"], times["until"]; !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return nil, fmt.Errorf("--since %s is not before --until %s: no event can lie between; exchange them", o.since, o.until)
	}
	if o.query != "" {
		if _, err := query.Parse(o.query); err != nil {
			return nil, fmt.Errorf("--query: %s", strings.TrimPrefix(err.Error(), "query, "))
		}
		v.Set("query", o.query)
	}
	least, most := 1, maxEvents
	if o.follow {
		least, most = 0, store.MaxLimit
		if o.until != "" {
			return nil, errors.New("--until and --follow exclude each other: new events have no end")
		}
	}
	if o.limit < least || o.limit > most {
		return nil, fmt.Errorf("--limit: want %d to %d, got %d", least, most, o.limit)
	}
	return v, nil
}

func (o *eventsOptions) run(ctx context.Context) error {
	v, err := o.parameters()
	if err != nil {
		return err
	}
	for _, h := range query.Hints(o.query) {
		fmt.Fprintf(o.stderr, "hint: %s\n", oneLine(h))
	}
	if o.follow {
		o.unknownClusters(ctx)
		return o.stream(ctx, v)
	}
	page := store.Page{Items: []record.Record{}}
	for {
		v.Set("limit", strconv.Itoa(min(store.MaxLimit, o.limit-len(page.Items))))
		var more store.Page
		if err := getJSON(ctx, o.server, "/api/v1/events?"+v.Encode(), &more); err != nil {
			return err
		}
		page.Items = append(page.Items, more.Items...)
		for _, u := range more.Unseen {
			if !slices.Contains(page.Unseen, u) {
				page.Unseen = append(page.Unseen, u)
			}
		}
		page.Next = more.Next
		if page.Next == "" || len(page.Items) >= o.limit {
			break
		}
		v.Set("after", page.Next)
	}
	slices.Reverse(page.Items) // the newest stands last, where the prompt is
	for _, u := range page.Unseen {
		fmt.Fprintf(o.stderr, "not searched: %s\n", oneLine(u))
	}
	if page.Next != "" {
		fmt.Fprintf(o.stderr, "these are the newest %d; there are more with --limit\n", len(page.Items))
	}
	if len(page.Items) == 0 {
		o.unknownClusters(ctx)
	}
	if len(page.Items) == 0 && (o.output == outputTable || o.output == outputWide) {
		fmt.Fprintln(o.stderr, "no events match")
		return nil
	}
	page.Next = ""
	return o.output.print(o.stdout, page, func(wide bool) [][]string {
		when := lastSeen
		if wide {
			when = clock
		}
		rows := [][]string{eventHeader(wide)}
		for _, r := range page.Items {
			rows = append(rows, eventRow(r, when(r.Time), wide))
		}
		return rows
	})
}

// unknownClusters says which of --cluster are not in the fleet. Records of a
// cluster that left it can be asked for all the same, so this is a hint.
func (o *eventsOptions) unknownClusters(ctx context.Context) {
	if len(o.clusters) == 0 {
		return
	}
	var known list[clusterItem]
	if err := getJSON(ctx, o.server, "/api/v1/clusters", &known); err != nil {
		return // a hint is not worth an error
	}
	ids := make([]string, len(known.Items))
	for i, c := range known.Items {
		ids[i] = c.ID
	}
	for _, c := range o.clusters {
		if !slices.Contains(ids, c) {
			fmt.Fprintf(o.stderr, "hint: no cluster %q in the fleet; there are %s\n", oneLine(c), oneLine(strings.Join(ids, ", ")))
		}
	}
}

// stream prints what the server sends, one record to a line.
func (o *eventsOptions) stream(ctx context.Context, v url.Values) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Heartbeats keep the watchdog quiet.
	quiet := 3 * store.Heartbeat
	watchdog := time.AfterFunc(quiet, func() {
		cancel(fmt.Errorf("nothing was heard from %s for %s; run the command again", o.server, quiet))
	})
	defer watchdog.Stop()
	v.Set("follow", "true")
	v.Set("limit", strconv.Itoa(o.limit))
	resp, err := get(ctx, o.server, "/api/v1/events?"+v.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	p := eventPrinter{output: o.output, table: tablePrinter{w: o.stdout}}
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		watchdog.Reset(quiet)
		if len(line) > 1 {
			if err := p.line(line); err != nil {
				return err
			}
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("%s ended the stream; run the command again when it is back", o.server)
		}
	}
}

// eventPrinter prints records as they come.
type eventPrinter struct {
	output outputFormat
	table  tablePrinter
	begun  bool
}

func (p *eventPrinter) line(line []byte) error {
	var r struct {
		record.Record
		Error string `json:"error"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("read the stream of events: %w; check --server", err)
	}
	if r.Error != "" {
		return fmt.Errorf("the stream of events broke: %s; run the command again", oneLine(r.Error))
	}
	switch p.output {
	case outputJSON:
		_, err := p.table.w.Write(escapeJSON(line))
		return err
	case outputYAML:
		b, err := jsonToYAML(line)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		_, err = p.table.w.Write(append([]byte("---\n"), b...))
		return err
	case outputTable, outputWide:
	}
	var rows [][]string
	wide := p.output == outputWide
	if !p.begun {
		rows = append(rows, eventHeader(wide))
		p.begun = true
	}
	return p.table.print(append(rows, eventRow(r.Record, clock(r.Time), wide)))
}

func eventHeader(wide bool) []string {
	if wide {
		return []string{"TIME", "CLUSTER", "NAMESPACE", "TYPE", "REASON", "OBJECT", "COUNT", "OCCURRENCES", "SOURCE", "MESSAGE"}
	}
	return []string{"TIME", "CLUSTER", "NAMESPACE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"}
}

func eventRow(r record.Record, when string, wide bool) []string {
	object := strings.ToLower(r.Object.Kind) + "/" + r.Object.Name
	if r.Kind == record.KindGap {
		object = "-"
	}
	row := []string{when, r.Cluster, dash(r.Object.Namespace), r.Type, r.Reason, object, strconv.FormatInt(r.Count, 10)}
	if wide {
		source := strings.Trim(r.Source.Component+", "+r.Source.Host, ", ")
		row = append(row, strconv.FormatInt(r.Occurrences, 10), dash(source))
	}
	return append(row, r.Message)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// lastSeen is how long ago t was, as kubectl tells it.
func lastSeen(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return duration.HumanDuration(time.Since(t))
}

// clock is t for people, in their time zone.
func clock(t time.Time) string { return t.Local().Format(time.RFC3339) }
