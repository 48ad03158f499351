package doccheck

import (
	"cmp"
	"fmt"
	"slices"
)

// A Finding is one thing that a page says and that is not so.
type Finding struct {
	Page string // relative to the root
	Line int    // from 1; 0 for a page as a whole
	Text string
}

// String returns the finding as editors and compilers write them.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Page, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s", f.Page, f.Line, f.Text)
}

// Check compares all pages below root with everything else below it. An error
// means that it could not look; what it found is no error.
func Check(root string) ([]Finding, error) {
	src, err := readSources(root)
	if err != nil {
		return nil, err
	}
	pages, err := readPages(root)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, p := range pages {
		findings = append(findings, src.names(p)...)
		findings = append(findings, links(p, pages, src)...)
	}
	findings = append(findings, twins(pages)...)
	findings = append(findings, decisions(pages, src)...)
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Page, b.Page), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(findings), nil
}
