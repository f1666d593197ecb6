package main

import (
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fleetwatch": main})
}

// TestScripts runs the command line as a user does; see testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", "")
			env.Setenv("HOME", env.WorkDir)
			// A program that `up` looks for and that these scripts never get to.
			for _, name := range []string{"thanos", "testbed"} {
				if err := os.WriteFile(env.WorkDir+"/"+name, []byte("#!/bin/sh\nexit 9\n"), 0o700); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// hold takes a free port until the script ends and puts it into $PORT.
			"hold": func(ts *testscript.TestScript, _ bool, _ []string) {
				l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
				ts.Check(err)
				ts.Defer(func() { _ = l.Close() })
				_, port, err := net.SplitHostPort(l.Addr().String())
				ts.Check(err)
				ts.Setenv("PORT", port)
			},
			// oneline checks that the last command said exactly one line on
			// stderr, without a stack trace.
			"oneline": func(ts *testscript.TestScript, _ bool, _ []string) {
				text := ts.ReadFile("stderr")
				lines := 0
				for _, r := range text {
					if r == '\n' {
						lines++
					}
				}
				if lines != 1 {
					ts.Fatalf("want one line, got %d:\n%s", lines, text)
				}
			},
		},
	})
}
