package orderpaid_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const casesPage = "docs/09-public-cases.md"

var (
	caseNumber = regexp.MustCompile(`\bC\d{2,3}[a-z]?\b`)
	// A row has a link to a report and, at its end, its tests.
	caseRow  = regexp.MustCompile(`^\| (C\d{2,3}[a-z]?) \| [^|]+ \| \[[^|]+\]\(https://[^|]+\) \| [^|]+ \| ([^|]+) \|$`)
	caseTest = regexp.MustCompile("`(Test\\w+)`")
)

// A number in a comment is worth something only if it leads to what went wrong,
// and a row only if a test says that it is about it.
func TestPublicCasesAndTestsAgree(t *testing.T) {
	t.Parallel()
	findings, err := compareCases(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range findings {
		t.Error(finding)
	}
}

// The comparison is held against pages and tests that disagree, because one
// that finds nothing, wherever it looks, would pass above as well.
func TestEveryDisagreementAboutPublicCasesIsFound(t *testing.T) {
	t.Parallel()
	const row = "| C01 | lost | [a/b#1](https://git.example/1) | kept | `TestA`, `TestB` |\n"
	const tests = "package p\n\n// C01: it was lost.\nfunc TestA() {}\n\n// Of C01, the rest.\nfunc TestB() {}\n"
	for name, tc := range map[string]struct {
		page, tests string
		want        []string
	}{
		"none":                          {row, tests, nil},
		"a number without a row":        {row, tests + "\n// C02: doubled.\nfunc TestC() {}\n", []string{"TestC names C02, which has no row"}},
		"a test that its row forgot":    {row, tests + "\n// C01: again.\nfunc TestC() {}\n", []string{"TestC names C01, whose row does not name it"}},
		"a row whose test is silent":    {row, strings.Replace(tests, "Of C01, the", "The", 1), []string{"the row C01 names TestB, whose comment does not name it"}},
		"a row whose test is gone":      {row, strings.Replace(tests, "TestB", "TestC", 1), []string{"TestC names C01, whose row does not name it", "the row C01 names TestB, whose comment does not name it"}},
		"a row that came twice":         {row + row, tests, []string{"the row C01 comes twice"}},
		"a row without a link":          {row + "| C02 | lost | somewhere | kept | `TestA` |\n", tests, []string{"the row C02 cannot be read: it needs a link and a test"}},
		"a row without a test":          {row + "| C02 | lost | [a](https://git.example/2) | kept | none |\n", tests, []string{"the row C02 cannot be read: it needs a link and a test"}},
		"a number that is no test's":    {row, tests + "\n// C01: a helper.\nfunc help() {}\n", []string{"p_test.go has C01 in a comment that is no test's"}},
		"a number inside of a test":     {row, tests + "\nfunc TestC() {\n\t// C01: here.\n}\n", []string{"p_test.go has C01 in a comment that is no test's"}},
		"neither a row nor a comment":   {"", "package p\n", []string{"there is no case"}},
		"a number in prose is no row's": {row + "\nC50 has no row.\n", tests, nil},
	} {
		got, err := compareCases(fstest.MapFS{casesPage: {Data: []byte(tc.page)}, "p_test.go": {Data: []byte(tc.tests)}})
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// compareCases returns what the page and the comments of the tests below fsys
// say differently.
func compareCases(fsys fs.FS) (findings []string, err error) {
	rows, findings, err := caseRows(fsys)
	if err != nil {
		return nil, err
	}
	named, strays, err := casesOfComments(fsys)
	if err != nil {
		return nil, err
	}
	findings = append(findings, strays...)
	if len(rows) == 0 && len(named) == 0 {
		findings = append(findings, "there is no case")
	}
	for number, tests := range named {
		for test := range tests {
			switch row, ok := rows[number]; {
			case !ok:
				findings = append(findings, fmt.Sprintf("%s names %s, which has no row", test, number))
			case !row[test]:
				findings = append(findings, fmt.Sprintf("%s names %s, whose row does not name it", test, number))
			}
		}
	}
	for number, tests := range rows {
		for test := range tests {
			if !named[number][test] {
				findings = append(findings, fmt.Sprintf("the row %s names %s, whose comment does not name it", number, test))
			}
		}
	}
	slices.Sort(findings)
	return findings, nil
}

// caseRows returns the tests of each row, and the rows that are none.
func caseRows(fsys fs.FS) (rows map[string]map[string]bool, findings []string, err error) {
	page, err := fs.ReadFile(fsys, casesPage)
	if err != nil {
		return nil, nil, err
	}
	rows = map[string]map[string]bool{}
	for line := range strings.Lines(string(page)) {
		number := caseNumber.FindString(line)
		if !strings.HasPrefix(line, "| C") || number == "" {
			continue
		}
		tests := map[string]bool{}
		if row := caseRow.FindStringSubmatch(strings.TrimSpace(line)); row != nil {
			for _, test := range caseTest.FindAllStringSubmatch(row[2], -1) {
				tests[test[1]] = true
			}
		}
		switch {
		case len(tests) == 0:
			findings = append(findings, fmt.Sprintf("the row %s cannot be read: it needs a link and a test", number))
		case rows[number] != nil:
			findings = append(findings, fmt.Sprintf("the row %s comes twice", number))
		default:
			rows[number] = tests
		}
	}
	return rows, findings, nil
}

// casesOfComments returns the tests that name each number, and the comments
// that name one and belong to no test.
func casesOfComments(fsys fs.FS) (named map[string]map[string]bool, findings []string, err error) {
	named = map[string]map[string]bool{}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		raw, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, raw, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tests := testsByComment(file)
		for _, comment := range file.Comments {
			for _, number := range caseNumber.FindAllString(comment.Text(), -1) {
				test, ok := tests[comment]
				if !ok {
					findings = append(findings, fmt.Sprintf("%s has %s in a comment that is no test's", name, number))
					continue
				}
				if named[number] == nil {
					named[number] = map[string]bool{}
				}
				named[number][test] = true
			}
		}
		return nil
	})
	return named, findings, err
}

func testsByComment(file *ast.File) map[*ast.CommentGroup]string {
	tests := map[*ast.CommentGroup]string{}
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && d.Doc != nil && strings.HasPrefix(d.Name.Name, "Test") {
			tests[d.Doc] = d.Name.Name
		}
	}
	return tests
}
