package demo

import (
	"os"
	"testing"
)

func TestTheFootprintIncludesChildren(t *testing.T) {
	t.Parallel()
	alone, err := measureMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newTestSupervisor(t)
	startRole(t, s, "good")
	child, err := measureMemory(s.PID("good"))
	if err != nil {
		t.Fatal(err)
	}
	if child.Processes != 1 || child.Bytes < 1<<20 {
		t.Errorf("the child is %s, want one process of more than 1 MB", child)
	}
	both, err := measureMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if both.Processes < 2 || both.Bytes <= alone.Bytes/2 {
		t.Errorf("with a child %s, alone %s", both, alone)
	}
}

func TestBothWaysToCountMemoryFindTheSameProcesses(t *testing.T) {
	t.Parallel()
	s, _ := newTestSupervisor(t)
	startRole(t, s, "good")
	pid := s.PID("good")
	exact, err := measureMemory(pid)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := residentSizes([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	if bound.Processes != exact.Processes || bound.Bytes < exact.Bytes/2 {
		t.Errorf("ps says %s, want about %s", bound, exact)
	}
}
