// Command security stands before and after govulncheck: it writes Go's database
// of vulnerabilities in the form in which govulncheck reads it from a disk, from
// the copy that go.mod pins, and says in words what was found.
//
//	golang.org/x/vulndb (data/osv) ──► security make ──► govulncheck -db file://DIR ──► security report
//
// So the answer to "is anything known to be vulnerable?" needs no server, and is
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

const usage = `usage: security make OSV DIR     reads the reports in OSV and makes the database in DIR
       security report < FILE    says what "govulncheck -format json" found; 1 if a module has it, 0 if only Go's own library has`

func main() {
	var err error
	bad := false
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[0] == "make":
		err = write(args[1], args[2])
	case len(args) == 1 && args[0] == "report":
		bad, err = report(os.Stdin, os.Stdout)
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "security:", err)
		os.Exit(2)
	}
	if bad {
		os.Exit(1)
	}
}

// entry is what the index needs of a report.
type entry struct {
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
		var r entry
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
func (r entry) fixes() map[string]string {
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
