package demo

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheRateIsToldOfEachMisfortuneAndOverAll(t *testing.T) {
	t.Parallel()
	p, began := new(paces), time.Now()
	p.turn("kill -9 points", began)
	p.done.Store(300)
	p.turn("freeze nats-server", began.Add(2*time.Second))
	p.done.Store(330)
	p.turn("", began.Add(4*time.Second))
	got := p.String()
	for _, want := range []string{"kill -9 points             150", "freeze nats-server         15", "2 misfortunes, 4s in all   82", "fewer than 100"} {
		if !strings.Contains(got, want) {
			t.Errorf("the table has no %q:\n%s", want, got)
		}
	}
}

func TestOnlyExplainedCopiesOfMailsAreAllowed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		copies, explained int64
		lost, want        bool
	}{{0, 0, false, true}, {3, 8, false, true}, {9, 8, false, false}, {1, 0, false, false}, {3, 8, true, false}} {
		report := &Report{Results: []Result{single(checkCopies, 0, tc.copies), single("points: awards", 1, map[bool]int64{true: 0, false: 1}[tc.lost])}}
		report.allowCopies(tc.explained)
		if report.OK != tc.want {
			t.Errorf("%+v: OK is %v, want %v", tc, report.OK, tc.want)
		}
	}
}

// A load that was held up makes up for it, and ends when it is told to.
func TestALoadKeepsItsTimesAndEndsWhenThereIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enough, numbers, ended := make(chan struct{}), make(chan int), make(chan error, 1)
		go func() {
			ended <- paced(t.Context(), LoadConfig{Orders: 1000, Rate: 100, Enough: enough}, numbers)
		}()
		began := time.Now()
		<-time.After(time.Second) // of the bubble: nobody takes a number
		for want := 1; want <= 150; want++ {
			if got := <-numbers; got != want {
				t.Fatalf("got number %d, want %d", got, want)
			}
		}
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("150 orders at 100 a second have begun after %v, want 1.5 s", took)
		}
		close(enough)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
