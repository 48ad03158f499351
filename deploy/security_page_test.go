package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Nothing is allowed on that page that no test has used, and no test has tried
// to do more with.
func TestEveryRowOfTheSecurityPageIsTried(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/07-security.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(string(raw), -1) {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	var who []string
	for _, title := range []string{"The doors", "NATS"} {
		for _, row := range rows(sections[title]) {
			who = append(who, row[0])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(shop_[a-z]+) in shop_`).FindAllStringSubmatch(sections["PostgreSQL"], -1) {
		who = append(who, m[1])
	}
	tried := rows(sections["Every row above, tried"])
	for _, name := range who {
		if !slices.ContainsFunc(tried, func(row []string) bool {
			return row[0] == name || slices.Contains(strings.Split(row[0], ", "), name)
		}) {
			t.Errorf("%s: no line says which tests use and try its rights", name)
		}
	}
	test := regexp.MustCompile("`Test[A-Za-z]+`")
	for _, row := range tried {
		if len(row) != 3 || !test.MatchString(row[1]) || !test.MatchString(row[2]) {
			t.Errorf("%s: lacks a test of what it may, or of what it may not", row[0])
		}
	}
	if len(who) < 15 {
		t.Errorf("read %d rows, want all", len(who))
	}
}

// A test that was renamed must not stay behind as a promise.
func TestEveryTestThatTheSecurityPageNamesExists(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/07-security.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err = fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			exists[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(raw), -1)
	for _, m := range named {
		if !exists[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
	if got, least := len(named), 60; got < least {
		t.Errorf("read the names of %d tests, want %d at least", got, least)
	}
}

// rows returns the cells of a table's rows, without its head.
func rows(section string) (all [][]string) {
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	return all[min(1, len(all)):] // the head goes
}
