// Command security writes the vulnerability database of Go in the form in which
// govulncheck reads it from a disk, from the copy that go.mod pins.
//
//	golang.org/x/vulndb (data/osv) ──► security DIR ──► govulncheck -db file://DIR
//
// So the answer to "is a known vulnerability called?" needs no server, and is
// the same for everybody who has the same commit. It is as old as the pin.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: security OSV DIR\n\nReads the reports in OSV and makes the database in DIR.")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "security:", err)
		os.Exit(1)
	}
}

// report is what the index needs of a report.
type report struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"` // zero in the repository: its server fills it in
	Affected []struct {
		Package struct{ Name string } `json:"package"`
		Ranges  []struct {
			Events []struct {
				Fixed string `json:"fixed"`
			} `json:"events"`
		} `json:"ranges"`
	} `json:"affected"`
}

// module is a line of index/modules.json: what the database knows about one.
type module struct {
	Path  string `json:"path"`
	Vulns []vuln `json:"vulns"`
}

type vuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Fixed    string    `json:"fixed,omitempty"`
}

// write makes the database of the reports.
func write(osv, dir string) error {
	files, err := filepath.Glob(filepath.Join(osv, "GO-*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%d reports in %s: %v", len(files), osv, err)
	}
	modules := map[string][]vuln{}
	for _, file := range files {
		raw, err := os.ReadFile(file) //nolint:gosec // G304: the files are those of a module that go.sum vouches for
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for path, fixed := range r.fixes() {
			modules[path] = append(modules[path], vuln{r.ID, r.Modified, fixed})
		}
		if err := put(filepath.Join(dir, "ID", r.ID+".json"), json.RawMessage(raw)); err != nil {
			return err
		}
	}
	index := make([]module, 0, len(modules))
	for path, vulns := range modules {
		index = append(index, module{path, vulns})
	}
	slices.SortFunc(index, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	if err := put(filepath.Join(dir, "index", "modules.json"), index); err != nil {
		return err
	}
	return put(filepath.Join(dir, "index", "db.json"), map[string]time.Time{"modified": {}})
}

// fixes returns the last version that fixes each module. Empty is: none.
func (r report) fixes() map[string]string {
	fixes := map[string]string{}
	for _, affected := range r.Affected {
		fixes[affected.Package.Name] = ""
		for _, ranges := range affected.Ranges {
			for _, event := range ranges.Events {
				if event.Fixed != "" {
					fixes[affected.Package.Name] = event.Fixed
				}
			}
		}
	}
	return fixes
}

func put(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}
