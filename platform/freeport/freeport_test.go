package freeport_test

import (
	"net"
	"strconv"
	"sync"
	"testing"

	"orderpaid/platform/freeport"
)

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A port of the system's own range could go to anybody's connection before the
// server listens.
func TestServersThatStartAtOnceGetPortsOfTheirOwnThatNoConnectionTakes(t *testing.T) {
	t.Parallel()
	var picker freeport.Picker
	addrs := make([]string, 50)
	var all sync.WaitGroup
	for i := range addrs {
		all.Go(func() {
			var err error
			if addrs[i], err = picker.Pick(0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, addr := range addrs {
		if seen[addr] {
			t.Errorf("%s was given twice", addr)
		}
		seen[addr] = true
		if port := portOf(t, addr); port < 15_000 || port >= 30_000 {
			t.Errorf("got port %d, want one below those of outgoing connections", port)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}

func TestThePreferredPortIsGivenOnceAndOnlyWhileNobodyListensThere(t *testing.T) {
	t.Parallel()
	var picker, other freeport.Picker
	first, err := picker.Pick(0)
	if err != nil {
		t.Fatal(err)
	}
	free := portOf(t, first)
	if got, err := other.Pick(free); err != nil || got != first {
		t.Errorf("got %s, %v for a port that is free, want %s", got, err, first)
	}
	if got, err := other.Pick(free); err != nil || got == first {
		t.Errorf("got %s, %v for a port that was given, want another", got, err)
	}
	l, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var late freeport.Picker
	if got, err := late.Pick(free); err != nil || got == first {
		t.Errorf("got %s, %v for a port at which somebody listens, want another", got, err)
	}
}
