package search

import (
	"errors"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/postgres"
)

func TestEveryStatementFitsTheSchema(t *testing.T) {
	t.Parallel()
	statements := map[string]string{
		"sqlTakeIn": sqlTakeIn, "sqlPutDocuments": sqlPutDocuments, "sqlChangeDocuments": sqlChangeDocuments,
		"sqlIndexedAsOf": sqlIndexedAsOf, "sqlFind": sqlFind,
		"sqlAnalyze": sqlAnalyze, "sqlBeginRebuild": sqlBeginRebuild, "sqlForgetProgress": sqlForgetProgress, "sqlForgetInbox": sqlForgetInbox,
		"sqlDiscardFailures": sqlDiscardFailures, "sqlEmptySlot0": sqlEmptySlot0, "sqlEmptySlot1": sqlEmptySlot1,
		"sqlMayRebuild": sqlMayRebuild, "sqlBehind": sqlBehind, "sqlCarryOver": sqlCarryOver,
		"sqlPause": sqlPause, "sqlKeepPause": sqlKeepPause, "sqlResume": sqlResume, "sqlStillPaused": sqlStillPaused,
		"sqlHandOverProgress": sqlHandOverProgress, "sqlHandOverInbox": sqlHandOverInbox,
		"sqlResolveFailures": sqlResolveFailures, "sqlHandOverFailures": sqlHandOverFailures, "sqlSwitch": sqlSwitch, "sqlCountFailed": sqlCountFailed, "sqlLiveSlot": sqlLiveSlot,
	}
	for _, name := range statementsOf(t, "store.go", "rebuild.go", "rebuild_switch.go") {
		if statements[name] == "" {
			t.Errorf("%s is not among the statements of this test", name)
		}
	}
	pgtest.PrepareAll(t, pgtest.New(t, "search"), statements)
}

// statementsOf returns the names of the constants that hold SQL.
func statementsOf(t *testing.T, files ...string) (names []string) {
	t.Helper()
	for _, name := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "sql") {
				names = append(names, spec.Names[0].Name)
			}
			return true
		})
	}
	return names
}

// C33: the statements themselves keep what is newer, whoever calls them.
func TestAnOlderVersionNeverOverwritesANewerOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	order := newOrder()
	later, err := newDocument(placed(order, "u1", "Backpack"), 3)
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, later)
	earlier, err := newDocument(placed(order, "u2", "Tent"), 2)
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, earlier)
	f.put(t, earlier, earlier) // twice in one statement, too
	if got := f.document(t); got.UserID != "u1" || got.Version != 3 {
		t.Errorf("got %+v", got)
	}

	behind := f.change(t, Change{OrderID: order, Version: 3, State: StateCancelled}, Change{OrderID: order, Version: 2, State: StateCancelled})
	if got := f.document(t); !behind[order] || got.State != StatePendingPayment {
		t.Errorf("behind %v, got %+v", behind, got)
	}
	behind = f.change(t, Change{OrderID: order, Version: 5, PaidAt: noon.Add(2 * time.Hour)}, Change{OrderID: order, Version: 4, PaidAt: noon})
	if got := f.document(t); len(behind) != 0 || got.Version != 5 || !got.PaidAt.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("behind %v, got %+v", behind, got)
	}
}

func TestAChangeOfAnOrderWithoutADocumentIsAnError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	err := postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := changeDocuments(t.Context(), tx, 0, []Change{{OrderID: newOrder(), Version: 2, State: StatePaid}})
		return err
	})
	if !errors.Is(err, errNoDocument) {
		t.Errorf("got %v, want %v", err, errNoDocument)
	}
}

func TestNewestOfEachKeepsTheHighestVersion(t *testing.T) {
	t.Parallel()
	got := newestOfEach([]Change{{OrderID: "a", Version: 2}, {OrderID: "b", Version: 1}, {OrderID: "a", Version: 3}, {OrderID: "a", Version: 1}},
		func(c Change) (string, int64) { return c.OrderID, c.Version })
	if diff := cmp.Diff([]Change{{OrderID: "a", Version: 3}, {OrderID: "b", Version: 1}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func (f fixture) change(t *testing.T, changes ...Change) (behind map[string]bool) {
	t.Helper()
	err := postgres.InTx(t.Context(), f.pool, func(tx pgx.Tx) (err error) {
		behind, err = changeDocuments(t.Context(), tx, 0, changes)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return behind
}
