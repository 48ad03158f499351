package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleEnv makes the test binary play a child process instead of running tests.
const roleEnv = "ORDERPAID_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "good": // ends when asked to, or with its parent
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("up", os.Getpid())
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			asked <- syscall.SIGTERM
		}()
		<-asked
	case "deaf": // knows neither SIGTERM nor its parent
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("up", os.Getpid())
		select {}
	case "sick":
		fmt.Println("up", os.Getpid())
		os.Exit(3)
	case "guard":
		os.Setenv(roleEnv, "deaf")
		code, err := Guard(os.Args[0], nil)
		if err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	case "supervisor":
		superviseForATest()
	}
}

// superviseForATest runs a good child and a guarded one, says so, and waits to
// be killed.
func superviseForATest() {
	s, err := NewSupervisor(os.Getenv("ORDERPAID_TEST_LOGS"), func(string) {})
	if err != nil {
		panic(err)
	}
	for _, role := range []string{"good", "guard"} {
		if err := s.Start(context.Background(), roleSpec(role)); err != nil {
			panic(err)
		}
	}
	fmt.Println("supervising")
	select {}
}

// eventually polls cond until it is true, and fails the test when it is not
// within 20 s.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// alive reports whether the process exists and is not a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
