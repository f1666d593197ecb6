package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the generated references")

// TestReferenceCLI keeps docs/cli.md equal to the help of every command.
func TestReferenceCLI(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# Command line\n\nMade from the program's own help by `make generate`.\n")
	describe(&b, newRoot())
	golden(t, "cli.md", b.Bytes())
}

func describe(b *bytes.Buffer, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" {
		return
	}
	cmd.InitDefaultHelpFlag()
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintf(b, "\n## %s\n```\n%s\n\n%s```\n", cmd.CommandPath(), text, cmd.UsageString())
	for _, sub := range cmd.Commands() {
		describe(b, sub)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run make generate", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/%s is not what the code says; run make generate\n%s", name, diff)
	}
}
