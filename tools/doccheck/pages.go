package doccheck

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// links returns the relative links of a page that lead nowhere.
func links(p page, pages []page, src *sources) []Finding {
	var findings []Finding
	for _, link := range p.links {
		target, fragment, _ := strings.Cut(link.text, "#")
		if strings.Contains(target, ":") {
			continue // http:, mailto:
		}
		file := p.path
		if target != "" {
			file = path.Join(path.Dir(p.path), target)
		}
		if !src.files[file] {
			findings = append(findings, Finding{p.path, link.line, "dead link to " + quote(link.text)})
		} else if fragment != "" && !hasAnchor(pages, file, fragment) {
			findings = append(findings, Finding{p.path, link.line, "no heading for the link " + quote(link.text)})
		}
	}
	return findings
}

func hasAnchor(pages []page, file, fragment string) bool {
	for _, p := range pages {
		if p.path == file {
			return slices.ContainsFunc(p.headings, func(h heading) bool { return h.anchor == fragment })
		}
	}
	return true // not a page: lines of a source file, for example
}

var twinned = regexp.MustCompile(`^docs/(zh/)?(0[1-4]-[^/]+\.md)$`)

// twins compares each page that must exist in English and Chinese with its
// other form: the same headings by level, and the same names.
func twins(pages []page) []Finding {
	byPath := map[string]page{}
	for _, p := range pages {
		byPath[p.path] = p
	}
	var findings []Finding
	for _, p := range pages {
		m := twinned.FindStringSubmatch(p.path)
		switch {
		case p.path == "README.md":
			findings = append(findings, compareTwins(byPath, "README.md", "README.zh.md")...)
		case m != nil && m[1] == "":
			findings = append(findings, compareTwins(byPath, p.path, "docs/zh/"+m[2])...)
		case m != nil:
			if _, ok := byPath["docs/"+m[2]]; !ok {
				findings = append(findings, Finding{p.path, 0, "its English twin is missing"})
			}
		}
	}
	return findings
}

func compareTwins(byPath map[string]page, english, chinese string) []Finding {
	twin, ok := byPath[chinese]
	if !ok {
		return []Finding{{english, 0, "its Chinese twin " + quote(chinese) + " is missing"}}
	}
	var findings []Finding
	original := byPath[english]
	if have, want := levels(twin), levels(original); have != want {
		findings = append(findings, Finding{chinese, 0, fmt.Sprintf("headings %s, but %s has %s", have, english, want)})
	}
	have, want := spelled(twin), spelled(original)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !have[name] {
			findings = append(findings, Finding{chinese, 0, "does not mention " + quote(name) + ", as " + english + " does"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !want[name] {
			findings = append(findings, Finding{chinese, 0, "mentions " + quote(name) + ", which " + english + " does not"})
		}
	}
	return findings
}

func levels(p page) string {
	var b strings.Builder
	for _, h := range p.headings {
		fmt.Fprintf(&b, "%d", h.level)
	}
	return b.String()
}

func spelled(p page) map[string]bool {
	names := map[string]bool{}
	for _, sp := range p.spans {
		names[sp.text] = true
	}
	return names
}

var (
	decisionFile = regexp.MustCompile(`^docs/adr/\d{4}-[a-z0-9-]+\.md$`)
	sections     = []string{"context", "decision", "consequences", "evidence", "what-would-change-our-mind"}
)

// decisions checks the records: each has all sections and is in the index, and
// no dependency is without one.
func decisions(pages []page, src *sources) []Finding {
	var findings []Finding
	var all, index strings.Builder
	for _, p := range pages {
		if p.path == "docs/adr/README.md" {
			index.WriteString(p.text)
		}
		if !decisionFile.MatchString(p.path) {
			continue
		}
		all.WriteString(p.text)
		for _, section := range sections {
			if !slices.ContainsFunc(p.headings, func(h heading) bool { return h.anchor == section }) {
				findings = append(findings, Finding{p.path, 0, "has no section " + quote(section)})
			}
		}
	}
	for _, p := range pages {
		if decisionFile.MatchString(p.path) && !strings.Contains(index.String(), path.Base(p.path)) {
			findings = append(findings, Finding{"docs/adr/README.md", 0, "does not list " + quote(path.Base(p.path))})
		}
	}
	for _, module := range slices.Sorted(maps.Keys(src.direct())) {
		if !strings.Contains(all.String(), module) {
			findings = append(findings, Finding{"docs/adr/README.md", 0, "no record decides on the dependency " + quote(module)})
		}
	}
	return findings
}

// direct returns the modules from which our code imports something. What only
// bench imports is measured there, and nothing relies on it.
func (s *sources) direct() map[string]bool {
	direct := map[string]bool{}
	for imported := range s.relied {
		longest := ""
		for module := range s.modules {
			if (imported == module || strings.HasPrefix(imported, module+"/")) && len(module) > len(longest) {
				longest = module
			}
		}
		if longest != "" {
			direct[longest] = true
		}
	}
	return direct
}
