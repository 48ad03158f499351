package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

var flagName = regexp.MustCompile(`(?m)^\s+(--[a-z-]+)`)

// scripts/demo explains itself on a fresh clone, where a build takes minutes. So
// it has a text of its own, which must keep up with the flags.
func TestTheScriptsHelpHasEveryFlagAndBuildsNothing(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\necho built something\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "../scripts/demo", "--check", "--help")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var got, want []string
	for _, m := range flagName.FindAllSubmatch(text, -1) {
		got = append(got, string(m[1]))
	}
	for _, flag := range kong.Must(&Command{}).Model.Flags {
		if flag.Name != "help" {
			want = append(want, "--"+flag.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the flags %v, want %v, in\n%s", got, want, text)
	}
}
