package demo

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"orderpaid/platform/porttest"
)

func TestASecondDemoInTheSameFolderIsToldOfTheFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockFolder(dir)
	if want := fmt.Sprintf("already runs here as process %d: end it with Ctrl-C", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error that says %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	later, err := lockFolder(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := later.Close(); err != nil {
		t.Error(err)
	}
}

func TestAPortThatIsTakenIsToldWithTheOneInstead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", porttest.Free(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	for _, anyPorts := range []bool{false, true} {
		var notices []string
		s := &Stack{cfg: StackConfig{
			AnyPorts: anyPorts, Notice: func(line string) { notices = append(notices, line) }}}
		addr, err := s.address("the console", taken)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if !anyPorts {
			want = []string{fmt.Sprintf("port %d is taken, so the console is at %s", taken, addr)}
		}
		if got := fmt.Sprint(notices); got != fmt.Sprint(want) {
			t.Errorf("any ports %v: got notices %s, want %q", anyPorts, got, want)
		}
	}
}

func TestTheStartIsCountedInFractionsOfASecond(t *testing.T) {
	t.Setenv(envStarted, "1700000000.250000")
	if got, want := startTime(), time.UnixMilli(1700000000250); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
