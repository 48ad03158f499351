package demo

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAKilledChildIsStartedAgain(t *testing.T) {
	t.Parallel()
	s, notices := newTestSupervisor(t)
	startRole(t, s, "good")
	first := s.PID("good")

	if err := s.Kill("good"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new process", func() bool { pid := s.PID("good"); return pid != 0 && pid != first })
	if got := <-notices; !strings.Contains(got, "signal: killed") {
		t.Errorf("notice %q does not say how the child died", got)
	}
	second := s.PID("good")
	if got, want := <-notices, fmt.Sprintf("good is process %d again", second); got != want {
		t.Errorf("got notice %q, want %q", got, want)
	}

	s.StopAll()
	if alive(first) || alive(second) {
		t.Error("a process is left after StopAll")
	}
}

// nats-server is such a child. Whoever kills it must not read of a status that
// only the guard between has made up.
func TestTheSignalThatEndedAGuardedProgramIsTold(t *testing.T) {
	t.Parallel()
	s, notices := newTestSupervisor(t)
	startRole(t, s, "guard")
	guarded := pidsIn(t, s.LogFile("guard"))[0]
	if guarded == s.PID("guard") {
		t.Fatal("the log has the guard's own process")
	}
	if err := syscall.Kill(guarded, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := <-notices; !strings.Contains(got, "guard died (signal: killed)") {
		t.Errorf("notice %q does not name the signal", got)
	}
}

func TestAChildThatKeepsDyingIsGivenUp(t *testing.T) {
	t.Parallel()
	s, _ := newTestSupervisor(t)
	if err := s.Start(t.Context(), roleSpec("sick")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.Failed():
		if want := "died 6 times in a row (exit status 3)"; !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to say %q", err, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("it was never given up")
	}
	if got := len(pidsIn(t, s.LogFile("sick"))); got != maxQuickDeaths {
		t.Errorf("it was started %d times, want %d", got, maxQuickDeaths)
	}
}

func TestAChildThatIgnoresSIGTERMIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	s, _ := newTestSupervisor(t)
	spec := roleSpec("deaf")
	spec.Grace = 100 * time.Millisecond
	if err := s.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is up", func() bool { return len(pidsIn(t, s.LogFile("deaf"))) == 1 })
	pid := s.PID("deaf")
	if err := s.Stop("deaf"); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("it still runs")
	}
}

func TestAChildThatDoesNotBecomeReadyIsStoppedAndItsLogNamed(t *testing.T) {
	t.Parallel()
	s, _ := newTestSupervisor(t)
	spec := roleSpec("sick")
	spec.Ready = func(context.Context) error { return fmt.Errorf("connection refused") }
	err := s.Start(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), s.LogFile("sick")) {
		t.Errorf("got %v, want an error that names the log", err)
	}
}

// The worst end of a supervisor is one that it cannot react to.
func TestNothingIsLeftWhenTheSupervisorIsKilled(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	supervisor := exec.Command(os.Args[0])
	supervisor.Env = append(os.Environ(), roleEnv+"=supervisor", "ORDERPAID_TEST_LOGS="+logs)
	out, err := supervisor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "supervising\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	var pids []int
	eventually(t, "both children are up", func() bool {
		pids = append(pidsIn(t, filepath.Join(logs, "good.log")), pidsIn(t, filepath.Join(logs, "guard.log"))...)
		return len(pids) == 2
	})

	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait() // it was killed: that is its error
	eventually(t, "no child is left", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
}

func newTestSupervisor(t *testing.T) (*Supervisor, <-chan string) {
	t.Helper()
	notices := make(chan string, 2*maxQuickDeaths)
	s, err := NewSupervisor(t.TempDir(), func(line string) { notices <- line })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.StopAll)
	return s, notices
}

func roleSpec(role string) Spec {
	return Spec{Name: role, Path: os.Args[0], Env: []string{roleEnv + "=" + role}}
}

func startRole(t *testing.T, s *Supervisor, role string) {
	t.Helper()
	if err := s.Start(t.Context(), roleSpec(role)); err != nil {
		t.Fatal(err)
	}
	eventually(t, role+" is up", func() bool { return len(pidsIn(t, s.LogFile(role))) > 0 })
}

// pidsIn returns the process ids that the roles wrote to their log.
func pidsIn(t *testing.T, log string) []int {
	t.Helper()
	raw, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var pids []int
	for line := range strings.Lines(string(raw)) {
		if digits, ok := strings.CutPrefix(strings.TrimSpace(line), "up "); ok {
			pid, err := strconv.Atoi(digits)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
