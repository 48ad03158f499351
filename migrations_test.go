package orderpaid_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
)

// firstTables is the last migration of each folder that was only ever applied to
// empty tables. A folder that is not here has one such migration.
var firstTables = map[string]int64{"messaging": 4, "order": 5, "points": 2, "notify": 3, "search": 2, "console": 2}

// smallTables stay small for as long as the shop lives, so an index on one is
// built before anybody notices.
var smallTables = []string{"payment_exception"}

var (
	createTable = regexp.MustCompile(`(?i)CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)
	createIndex = regexp.MustCompile(`(?i)CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)\s+ON (?:ONLY )?(\w+)`)
)

// slowIndexes finds the indexes that a migration builds while nobody can write
// to the table, and those that a second try would find there, unusable.
func slowIndexes(fsys fs.FS) (findings []string, err error) {
	names, err := fs.Glob(fsys, "migrations/*/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		raw, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		if version > max(1, firstTables[path.Base(path.Dir(name))]) {
			findings = append(findings, slowIndexesOf(name, string(raw))...)
		}
	}
	return findings, nil
}

func slowIndexesOf(name, sql string) (findings []string) {
	var empty []string
	for _, table := range createTable.FindAllStringSubmatch(sql, -1) {
		empty = append(empty, table[1])
	}
	for _, at := range createIndex.FindAllStringSubmatchIndex(sql, -1) {
		before, concurrently, index, table := sql[:at[0]], at[2] >= 0, sql[at[4]:at[5]], sql[at[6]:at[7]]
		switch {
		case slices.Contains(empty, table) || slices.Contains(smallTables, table):
		case !concurrently || !strings.Contains(sql, "-- +goose NO TRANSACTION"):
			findings = append(findings, fmt.Sprintf("%s builds %s while nobody can write to %s: see CONTRIBUTING.md", name, index, table))
		case !strings.Contains(before, "DROP INDEX CONCURRENTLY IF EXISTS "+index):
			findings = append(findings, fmt.Sprintf("%s does not drop what an earlier try has left of %s", name, index))
		}
	}
	return findings
}

func TestNoMigrationBuildsAnIndexWhileNobodyCanWrite(t *testing.T) {
	t.Parallel()
	findings, err := slowIndexes(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range findings {
		t.Error(finding)
	}
}

func TestEveryIndexThatWouldStopWritersIsFound(t *testing.T) {
	t.Parallel()
	const noTransaction, dropped = "-- +goose NO TRANSACTION\n-- +goose Up\n", "DROP INDEX CONCURRENTLY IF EXISTS t_idx;\n"
	for sql, want := range map[string]string{
		"CREATE INDEX t_idx ON t (a);":                                      "while nobody can write to t",
		"CREATE UNIQUE INDEX t_idx\n\tON t (a);":                            "while nobody can write to t",
		"CREATE INDEX CONCURRENTLY t_idx ON t (a);":                         "while nobody can write to t",
		noTransaction + "CREATE INDEX CONCURRENTLY t_idx ON t (a);":         "earlier try has left of t_idx",
		noTransaction + dropped + "CREATE INDEX CONCURRENTLY t_idx ON t;":   "",
		"CREATE TABLE t (a text);\nCREATE INDEX t_idx ON t (a);":            "",
		"CREATE INDEX payment_exception_idx ON payment_exception (reason);": "",
	} {
		got, err := slowIndexes(fstest.MapFS{
			"migrations/order/00001_t.sql": {Data: []byte("CREATE INDEX first_idx ON first (a);")},
			"migrations/order/00099_t.sql": {Data: []byte(sql)},
		})
		if err != nil || (want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("%q: got %q, %v, want %q", sql, got, err, want)
		}
	}
}
