package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"slices"
	"strings"
)

// message is a line of what govulncheck writes with -format json, as far as it
// is of interest here.
type message struct {
	OSV     *advisory `json:"osv"`
	Finding *finding  `json:"finding"`
	SBOM    *struct {
		GoVersion string `json:"go_version"`
	} `json:"SBOM"`
}

type advisory struct {
	ID      string `json:"id"`
	Summary string `json:"summary"`
}

// finding is one advisory in one place. Without a package it says only that a
// module is required, and not that anything of the affected part is compiled.
type finding struct {
	OSV   string `json:"osv"`
	Fixed string `json:"fixed_version"`
	Trace []struct {
		Module  string `json:"module"`
		Version string `json:"version"`
		Package string `json:"package"`
	} `json:"trace"`
}

// stdlib is the name of Go's own library, among modules.
const stdlib = "stdlib"

// A hit is an advisory about packages that our programs import.
type hit struct {
	advisory
	module, version, fixed string
	packages               []string
}

// report reads what govulncheck found and says it plainly: what is in Go's own
// library, which no change of this repository mends, and what is in a module,
// which one does. Only the latter makes bad true.
func report(in io.Reader, out io.Writer) (bad bool, err error) {
	hits, goVersion, err := read(in)
	if err != nil {
		return false, err
	}
	var library, modules []hit
	for _, h := range hits {
		if h.module == stdlib {
			library = append(library, h)
		} else {
			modules = append(modules, h)
		}
	}
	if len(library) > 0 {
		fmt.Fprintf(out, "WARNING: Go's standard library, %s: %d known vulnerabilities in packages that our programs import.\n", goVersion, len(library))
		list(out, library)
		fmt.Fprintf(out, "  This fails nothing here, because no change of this repository mends it.\n"+
			"  What to do: build with %s or newer. An image built from golang:1.26 gets it as soon as that tag has it: docker build --pull.\n", newest(library))
	}
	if len(modules) > 0 {
		fmt.Fprintf(out, "FAILED: %d known vulnerabilities in modules that our programs import:\n", len(modules))
		list(out, modules)
		for _, h := range modules {
			if h.fixed != "" {
				fmt.Fprintf(out, "  What to do: go get %s@%s\n", h.module, h.fixed)
			} else {
				fmt.Fprintf(out, "  What to do: there is no fix of %s; do without the package\n", h.module)
			}
		}
	}
	return len(modules) > 0, nil
}

// read joins findings by advisory, in the order of their ids.
func read(in io.Reader) (hits []hit, goVersion string, err error) {
	advisories := map[string]advisory{}
	var findings []finding
	for dec := json.NewDecoder(in); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, "", fmt.Errorf("what govulncheck wrote: %w", err)
		}
		switch {
		case m.SBOM != nil:
			goVersion = m.SBOM.GoVersion
		case m.OSV != nil:
			advisories[m.OSV.ID] = *m.OSV
		case m.Finding != nil:
			findings = append(findings, *m.Finding)
		}
	}
	if goVersion == "" { // it always comes: without it nothing was looked at
		return nil, "", errors.New("govulncheck did not say what it looked at")
	}
	byID := map[string]*hit{}
	for _, f := range findings {
		if len(f.Trace) == 0 || f.Trace[0].Package == "" {
			continue
		}
		at := f.Trace[0]
		h := byID[f.OSV+at.Module]
		if h == nil {
			h = &hit{advisory: advisory{f.OSV, advisories[f.OSV].Summary}, module: at.Module, version: at.Version, fixed: f.Fixed}
			byID[f.OSV+at.Module] = h
		}
		h.packages = append(h.packages, at.Package)
	}
	for _, h := range byID {
		slices.Sort(h.packages)
		h.packages = slices.Compact(h.packages)
		hits = append(hits, *h)
	}
	slices.SortFunc(hits, func(a, b hit) int { return strings.Compare(a.ID+a.module, b.ID+b.module) })
	return hits, goVersion, nil
}

func list(out io.Writer, hits []hit) {
	for _, h := range hits {
		fixed := "no fix yet"
		if h.fixed != "" {
			fixed = "fixed in " + h.fixed
		}
		where := strings.Join(h.packages, ", ")
		if h.module != stdlib {
			where += " of " + h.module + "@" + h.version
		}
		fmt.Fprintf(out, "    %s  %s  (%s)\n      %s\n", h.ID, where, fixed, h.Summary)
	}
}

// newest returns the version of Go in which all of these are mended, as go
// version prints it.
func newest(hits []hit) string {
	last := "go1"
	for _, h := range hits {
		if v := "go" + strings.TrimPrefix(h.fixed, "v"); h.fixed != "" && version.Compare(v, last) > 0 {
			last = v
		}
	}
	return last
}
