package faults_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"orderpaid/platform/faults"
)

// TestMain doubles as the victim: with victimEnv set, this binary walks
// through two points three times instead of running tests.
func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		walk()
	}
	os.Exit(m.Run())
}

const victimEnv = "FAULTS_TEST_VICTIM"

func walk() {
	defer fmt.Println("deferred")
	for i := 1; i <= 3; i++ {
		faults.Hit("walk.before_step")
		fmt.Println("step", i)
		faults.Hit("walk.after_step")
	}
	os.Exit(0)
}

func TestProcessDiesByKillAtTheNamedPointAndTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault, output string
		killed        bool
	}{
		{"", "step 1\nstep 2\nstep 3\n", false},
		{"walk.before_step", "", true},
		{"walk.after_step", "step 1\n", true},
		{"walk.after_step:2", "step 1\nstep 2\n", true},
		{"walk.before_step:3", "step 1\nstep 2\n", true},
		{"walk.after_step:4", "step 1\nstep 2\nstep 3\n", false},
		{"somewhere.else", "step 1\nstep 2\nstep 3\n", false},
	} {
		t.Run("fault="+tc.fault, func(t *testing.T) {
			t.Parallel()
			output, err := victim(t, tc.fault)
			if output != tc.output {
				t.Errorf("output = %q, want %q", output, tc.output)
			}
			if got := killedBySignal(err); got != tc.killed {
				t.Errorf("killed = %v (%v), want %v", got, err, tc.killed)
			}
		})
	}
}

func TestFaultThatCannotBeReadEndsTheProcessAtStart(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"walk.after_step:", "walk.after_step:0", "walk.after_step:-1", "walk.after_step:x"} {
		output, err := victim(t, value)
		if err == nil || killedBySignal(err) || output != "" {
			t.Errorf("%s=%s: output %q, error %v; want an exit before the first step", faults.Env, value, output, err)
		}
	}
}

func victim(t *testing.T, fault string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"=1", faults.Env+"="+fault)
	out, err := cmd.Output()
	return string(out), err
}

func killedBySignal(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// BenchmarkHitWhenOff shows what a point costs where nobody experiments.
func BenchmarkHitWhenOff(b *testing.B) {
	for b.Loop() {
		faults.Hit("bench.point")
	}
}

var (
	hitCall   = regexp.MustCompile(`faults\.Hit\("([^"]+)"\)`)
	listEntry = regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z_]+) `)
)

// TestListOfPointsIsComplete compares doc.go with the calls in the code.
func TestListOfPointsIsComplete(t *testing.T) {
	t.Parallel()
	var called []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, call := range hitCall.FindAllStringSubmatch(string(source), -1) {
			called = append(called, call[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, entry := range listEntry.FindAllStringSubmatch(string(list), -1) {
		listed = append(listed, entry[1])
	}
	slices.Sort(called)
	slices.Sort(listed)
	if called = slices.Compact(called); !slices.Equal(called, listed) {
		t.Errorf("points in the code: %q, in doc.go: %q", called, listed)
	}
}
