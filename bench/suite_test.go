package main

import (
	"context"
	"errors"
	"io"
	"regexp"
	"testing"
	"time"
)

var everything = regexp.MustCompile("")

// counted returns a cell that counts its runs.
func counted(name string, runs *int) cell {
	return cell{name: name, run: func(context.Context) (Reading, error) { *runs++; return Reading{rate: float64(*runs)}, nil }}
}

func TestAGroupWithoutTimeHasFewTurnsAndOneWithTimeHasAll(t *testing.T) {
	t.Parallel()
	for ends, want := range map[time.Time]int{time.Now().Add(-time.Hour): fewestTurns, time.Now().Add(time.Hour): 5} {
		var a, b, once int
		single := counted("once", &once)
		single.once = true
		g := group{cells: []cell{counted("a", &a), counted("b", &b), single}}
		cells, err := g.measure(t.Context(), 5, ends, everything, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if a != want || b != want || once != 1 || len(cells[0].Runs) != want {
			t.Errorf("got %d, %d and %d runs, want %d, %[4]d and 1", a, b, once, want)
		}
	}
}

func TestAnInterruptionKeepsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	runs := 0
	second := cell{name: "b", run: func(context.Context) (Reading, error) {
		if runs == 2 {
			interrupt()
		}
		return Reading{rate: 1}, ctx.Err()
	}}
	cells, err := group{cells: []cell{counted("a", &runs), second}}.measure(ctx, 5, time.Now().Add(time.Hour), everything, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if len(cells) != 2 || len(cells[0].Runs) != 2 || cells[0].Median[rate] == 0 || len(cells[1].Runs) != 1 {
		t.Errorf("got %+v, want two runs of the first cell and one of the second", cells)
	}
}

func TestAGroupThatCannotBePreparedFailsAlone(t *testing.T) {
	t.Parallel()
	runs := 0
	g := group{cells: []cell{counted("a", &runs)}, prepare: func(context.Context) (func(), error) { return nil, errCheated }}
	cells, err := g.measure(t.Context(), 5, time.Now(), everything, io.Discard)
	if err != nil || runs != 0 || len(cells) != 1 || len(cells[0].Errors) != 1 {
		t.Errorf("got %v, %d runs and %+v; want one failed cell and no error", err, runs, cells)
	}
	if why := (Result{Cells: cells}).failed(); why == "" {
		t.Error("the result has not failed")
	}
}

func TestTheSharesOfTheGroupsAreTheWholeTime(t *testing.T) {
	t.Parallel()
	total := 0.0
	for _, g := range (&stand{sizing: fullSize()}).groups() {
		if g.share <= 0 {
			t.Errorf("%q has no share of the time", g.title)
		}
		total += g.share
	}
	if total != 100 {
		t.Errorf("got shares of %v in all, want 100", total)
	}
}
