package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/fleetwatch-io/fleetwatch/fleet"
	"github.com/fleetwatch-io/fleetwatch/inspect"
	"github.com/fleetwatch-io/fleetwatch/inspect/checks"
	"github.com/fleetwatch-io/fleetwatch/inspect/render"
	"github.com/fleetwatch-io/fleetwatch/inspect/snapshot"
	"github.com/fleetwatch-io/fleetwatch/internal/buildinfo"
	"github.com/fleetwatch-io/fleetwatch/internal/durable"
)

func newInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Say whether the fleet is ready: GO, RISK, NO-GO or UNKNOWN",
		Long: `Inspection reads every cluster once, runs the checks over what it read, and draws
a verdict for each cluster and for the fleet. It only reads, and no Secret.`,
		Args: cobra.NoArgs,
	}
	list := &cobra.Command{Use: "checks", Short: "Look at the catalogue of checks", Args: cobra.NoArgs}
	list.AddCommand(newChecksListCommand())
	cmd.AddCommand(newInspectRunCommand(), list)
	return cmd
}

type inspectOptions struct {
	kubeconfig string
	clusters   []string
	format     string
	out        string
	save       string
	snapshot   string
	waivers    string
	timeout    time.Duration
	stdout     io.Writer
	stderr     io.Writer
}

func newInspectRunCommand() *cobra.Command {
	var o inspectOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Inspect the clusters of a kubeconfig, or a saved snapshot",
		Long: `Inspect the clusters of a kubeconfig and print the report.

The exit code is the verdict of the worst cluster:
  0  GO       no critical or high check has failed
  1           error: there is no report
  2  RISK     every failed critical or high check is covered by a waiver
  3  NO-GO    a critical or high check has failed and is not waived
  4  UNKNOWN  a cluster is unreachable, or less than 95 % of its critical and
              high checks could be evaluated

A cluster that does not answer is UNKNOWN and the report says why; the others
are inspected all the same. 'fleetwatch inspect checks list' shows the checks.`,
		Example: `  fleetwatch inspect run
  fleetwatch inspect run --kubeconfig prod.yaml --cluster prod-a --cluster prod-b -o html --out report.html
  fleetwatch inspect run --waivers waivers.yaml --save today.snap.gz
  fleetwatch inspect run --snapshot today.snap.gz -o md`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.stdout, o.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runInspect(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` with a context for each cluster (default $KUBECONFIG, then ~/.kube/config)")
	f.StringArrayVar(&o.clusters, "cluster", nil, "inspect this `CONTEXT` only; may be repeated (default all contexts)")
	f.StringVarP(&o.format, "output", "o", "table", "`FORMAT` of the report: table, json, html or md")
	f.StringVar(&o.out, "out", "", "write the report to this `FILE` instead of to the terminal")
	f.StringVar(&o.save, "save", "", "save what was read to this `FILE`, to be replayed with --snapshot")
	f.StringVar(&o.snapshot, "snapshot", "", "inspect a saved `FILE` instead of the clusters")
	f.StringVar(&o.waivers, "waivers", "", "`FILE` of accepted findings (YAML)")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "longest time for one cluster; what was not read by then is unknown")
	return cmd
}

func (o *inspectOptions) validate() error {
	switch {
	case !slices.Contains(render.Formats(), o.format):
		return fmt.Errorf("-o: no format %q; choose one of %s", o.format, strings.Join(render.Formats(), ", "))
	case o.snapshot != "" && o.save != "":
		return errors.New("--save and --snapshot exclude each other: a snapshot from a file is saved already")
	case o.snapshot != "" && o.kubeconfig != "":
		return errors.New("--kubeconfig and --snapshot exclude each other: choose the clusters or the file")
	case o.timeout < time.Second:
		return fmt.Errorf("--timeout: want at least 1s, got %s", o.timeout)
	}
	if err := writable("--out", o.out); err != nil {
		return err
	}
	return writable("--save", o.save)
}

// writable finds out before the work whether its result can be written.
func writable(flag, path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s: %s is a folder; name a file", flag, path)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".fleetwatch-*")
	if err != nil {
		return fmt.Errorf("%s: cannot write to %s: %w", flag, filepath.Dir(path), errors.Unwrap(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func runInspect(ctx context.Context, o inspectOptions) error {
	if err := o.validate(); err != nil {
		return err
	}
	// What the client libraries have to say stands in the report as well.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	options := inspect.Options{
		Version: buildinfo.Version(),
		Collect: snapshot.Options{Timeout: o.timeout, UserAgent: "fleetwatch-inspect/" + buildinfo.Version()},
	}
	if o.waivers != "" {
		waivers, err := inspect.LoadWaivers(o.waivers, time.Now())
		if err != nil {
			return err
		}
		options.Waivers = waivers
	}
	snapshots, err := o.snapshots(ctx, options)
	if err != nil {
		return err
	}
	report, err := inspect.Judge(snapshots, options)
	if err != nil {
		return err
	}
	report.Replayed = o.snapshot != ""
	if err := o.write(report); err != nil {
		return err
	}
	if report.Verdict == inspect.Go {
		return nil
	}
	return exitError(report.Verdict.ExitCode())
}

func (o *inspectOptions) snapshots(ctx context.Context, options inspect.Options) ([]*snapshot.Snapshot, error) {
	if o.snapshot != "" {
		return o.replay()
	}
	sources, err := o.sources()
	if err != nil {
		return nil, err
	}
	progress := newInspectProgress(o.stderr, sources)
	options.Collect.Progress = progress.read
	stop := progress.start()
	snapshots, err := inspect.Collect(ctx, sources, options)
	stop()
	if err != nil || o.save == "" {
		return snapshots, err
	}
	var packed bytes.Buffer
	if err := snapshot.Encode(&packed, time.Now(), snapshots); err != nil {
		return nil, fmt.Errorf("--save: %w", err)
	}
	if err := durable.WriteFile(o.save, packed.Bytes(), 0o640); err != nil {
		return nil, fmt.Errorf("--save: %w", err)
	}
	return snapshots, nil
}

func (o *inspectOptions) replay() ([]*snapshot.Snapshot, error) {
	file, err := snapshot.Load(o.snapshot)
	if err != nil {
		return nil, fmt.Errorf("--snapshot: %w", err)
	}
	if len(o.clusters) == 0 {
		return file.Snapshots, nil
	}
	byName := map[string]*snapshot.Snapshot{}
	var names []string
	for _, snap := range file.Snapshots {
		byName[snap.Cluster] = snap
		names = append(names, snap.Cluster)
	}
	var chosen []*snapshot.Snapshot
	for _, name := range o.clusters {
		if byName[name] == nil {
			return nil, fmt.Errorf("--cluster: %s holds no cluster %q; it holds %s", o.snapshot, name, strings.Join(names, ", "))
		}
		chosen = append(chosen, byName[name])
	}
	return chosen, nil
}

func (o *inspectOptions) sources() ([]inspect.Source, error) {
	path := o.kubeconfig
	if path == "" {
		path = fleet.DefaultKubeconfig()
	}
	if path == "" {
		return nil, errors.New("no kubeconfig: give one with --kubeconfig, or set $KUBECONFIG")
	}
	clusters, err := fleet.FromKubeconfig(path, o.clusters)
	if err != nil {
		return nil, err
	}
	return inspectSources(clusters), nil
}

func (o *inspectOptions) write(report *inspect.Report) error {
	var text bytes.Buffer
	color := o.out == "" && o.format == "table" && os.Getenv("NO_COLOR") == "" && isTerminal(o.stdout)
	if err := render.Write(&text, o.format, report, color); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if o.out != "" {
		if err := durable.WriteFile(o.out, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		fmt.Fprintf(o.stderr, "verdict %s; the report is in %s\n", report.Verdict, o.out)
		return nil
	}
	if _, err := o.stdout.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func newChecksListCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the checks with severity, threshold and source",
		Example: `  fleetwatch inspect checks list -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch format {
			case "table":
				return listChecks(cmd.OutOrStdout())
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(checks.Catalogue())
			default:
				return fmt.Errorf("-o: no format %q; choose table or json", format)
			}
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "`FORMAT`: table or json")
	return cmd
}

func listChecks(w io.Writer) error {
	rows := [][]string{{"ID", "SEVERITY", "CATEGORY", "TITLE", "FAILS WHEN"}}
	for _, check := range checks.Catalogue() {
		rows = append(rows, []string{check.ID, string(check.Severity), string(check.Category), check.Title, check.Threshold})
	}
	return printTable(w, rows)
}
