package orderpaid_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A matrixRow is one row of docs/03-failure-matrix.md.
type matrixRow struct {
	name string // a crash point or a mistake; empty for a fault in prose
	test string
}

var (
	rowPattern  = regexp.MustCompile("(?m)^\\| (.*?) \\|.*\\| `(Test\\w+)` \\|$")
	namePattern = regexp.MustCompile("^`([a-z_.]+)`$")
	pointInList = regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z_]+) `)
)

func matrixRows(t *testing.T, page string) (rows []matrixRow) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rowPattern.FindAllStringSubmatch(string(raw), -1) {
		row := matrixRow{test: m[2]}
		if name := namePattern.FindStringSubmatch(m[1]); name != nil {
			row.name = name[1]
		}
		rows = append(rows, row)
	}
	return rows
}

// The page says what is tested, so it must not say more than that, and no test
// may be missing from it.
func TestFailureMatrixAndTestsAgree(t *testing.T) {
	t.Parallel()
	rows := matrixRows(t, "docs/03-failure-matrix.md")
	if zh := matrixRows(t, "docs/zh/03-failure-matrix.md"); !slices.Equal(zh, rows) {
		t.Errorf("the Chinese page has other rows than the English one:\n%v\n%v", zh, rows)
	}
	tested, named, of := map[string]bool{}, map[string]bool{}, map[string][]string{}
	for _, row := range rows {
		tested[row.test] = true
		if row.name != "" {
			named[row.name] = true
			of[row.test] = append(of[row.test], row.name)
		}
	}
	for test, want := range casesOfTests(t) { // what the tests have, the page has
		if !tested[test] {
			t.Errorf("%s has no row", test)
		}
		if got := of[test]; want != nil && !sameSet(got, want) {
			t.Errorf("%s: the page has the rows %q, the test the cases %q", test, got, want)
		}
	}
	list, err := os.ReadFile("platform/faults/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range pointInList.FindAllStringSubmatch(string(list), -1) {
		if !named[point[1]] {
			t.Errorf("the crash point %s has no row", point[1])
		}
	}
	for _, row := range rows { // what the page has, the tests have: that a test exists is checked with all other names
		if row.name == "" && row.test == "TestCrash" {
			t.Error("a row of TestCrash does not name its point")
		}
	}
}

// casesOfTests returns the tests of the matrix, and of those whose cases are
// rows of their own, the cases.
func casesOfTests(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("e2e/fault_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{}
	for _, file := range append(files, "e2e/matrix_test.go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				switch name := d.Name.Name; {
				case name == "TestCrash":
					tests[name] = literals(d)
				case strings.HasPrefix(name, "Test") && tests[name] == nil:
					tests[name] = nil
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == "mistakes" {
						tests["TestEachClassicMistakeIsSeen"] = append(tests["TestEachClassicMistakeIsSeen"], literals(v)...)
					}
				}
			}
		}
	}
	return tests
}

// literals returns the string literals below a node: in these two places, they
// are the names of cases and nothing else.
func literals(node ast.Node) (found []string) {
	ast.Inspect(node, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
