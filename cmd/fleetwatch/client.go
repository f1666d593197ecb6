package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

const (
	defaultServer  = "http://127.0.0.1:9700"
	requestTimeout = 35 * time.Second // a little more than the server takes
	maxAnswer      = 256 << 20        // bytes
)

// serverVariable names the default of --server in the environment.
const serverVariable = "FLEETWATCH_SERVER"

// serverFlag adds --server, the Fleetwatch to ask.
func serverFlag(cmd *cobra.Command, server *string) {
	def := os.Getenv(serverVariable)
	if def == "" {
		def = defaultServer
	}
	cmd.Flags().StringVar(server, "server", def, "`URL` of the Fleetwatch to ask; $"+serverVariable+" sets the default")
}

// getJSON asks the Fleetwatch at server for path, which may have a query, and
// decodes the answer into out.
func getJSON(ctx context.Context, server, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := get(ctx, server, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("read the answer of %s: %w", server, context.Cause(ctx))
		}
		return fmt.Errorf("%s did not answer as Fleetwatch does (%w); check --server", server, err)
	}
	return nil
}

func get(ctx context.Context, server, path string) (*http.Response, error) {
	return request(ctx, http.MethodGet, server, path)
}

// request returns a response with status 200, whose body the caller closes. An
// error names the server and the next step.
func request(ctx context.Context, method, server, path string) (*http.Response, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("--server: want a URL such as %s, got %q", defaultServer, server)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(server, "/")+path, nil)
	if err != nil {
		return nil, fmt.Errorf("--server: want a URL such as %s, got %q", defaultServer, server)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, unanswered(ctx, server, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var body struct {
		Error string `json:"error"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&body) // a proxy may answer otherwise
	if body.Error == "" {
		return nil, fmt.Errorf("%s answered %s to %s; check --server", server, resp.Status, req.URL.Path)
	}
	return nil, errors.New(oneLine(body.Error))
}

func unanswered(ctx context.Context, server string, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, refused := errors.AsType[*net.OpError](err); refused && ctx.Err() == nil {
		return fmt.Errorf("no Fleetwatch answers at %s (%w); start one with: fleetwatch up, or name another with --server", server, err)
	}
	return fmt.Errorf("ask Fleetwatch at %s: %w", server, err)
}

// outputFormat is the value of -o; the zero value is table.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputWide  outputFormat = "wide"
	outputJSON  outputFormat = "json"
	outputYAML  outputFormat = "yaml"
)

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, o *outputFormat) {
	*o = outputTable
	cmd.Flags().VarP(o, "output", "o", "`FORMAT` of the output: table, wide, json or yaml")
}

func (o *outputFormat) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *outputFormat) Type() string { return "format" }

// Set implements pflag.Value.
func (o *outputFormat) Set(text string) error {
	if !slices.Contains([]outputFormat{outputTable, outputWide, outputJSON, outputYAML}, outputFormat(text)) {
		return errors.New("want table, wide, json or yaml")
	}
	*o = outputFormat(text)
	return nil
}

// print writes v in the chosen format; rows makes the table of it, header
// first, with more columns when wide.
func (o outputFormat) print(w io.Writer, v any, rows func(wide bool) [][]string) error {
	switch o {
	case outputJSON:
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		_, err := w.Write(escapeJSON(b.Bytes()))
		return err
	case outputYAML:
		b, err := marshalYAML(v)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		_, err = w.Write(b)
		return err
	case outputTable, outputWide:
	}
	return printTable(w, rows(o == outputWide))
}

// printTable writes rows, the first of which is the header, in aligned columns.
func printTable(w io.Writer, rows [][]string) error {
	p := tablePrinter{w: w}
	return p.print(rows)
}

// tablePrinter aligns rows that come in several parts: columns only widen.
type tablePrinter struct {
	w      io.Writer
	widths []int
}

func (p *tablePrinter) print(rows [][]string) error {
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = oneLine(cell); i == len(p.widths) {
				p.widths = append(p.widths, 0)
			}
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(cell)+3))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

// oneLine takes everything out of text that could move the cursor: what a
// cluster says must not reach the terminal as an escape sequence.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}

// interactive runs fn until it ends, Ctrl-C is pressed or nobody reads the
// output any more (fleetwatch events | head): the last two are no errors.
func interactive(ctx context.Context, fn func(context.Context) error) error {
	signal.Ignore(syscall.SIGPIPE) // writes then fail with EPIPE
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := fn(ctx)
	if errors.Is(err, syscall.EPIPE) || err != nil && ctx.Err() != nil {
		return nil
	}
	return err
}
