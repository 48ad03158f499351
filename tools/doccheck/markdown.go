package doccheck

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// A page is one Markdown file, taken apart as far as names are concerned.
type page struct {
	path     string
	headings []heading
	spans    []span  // `code` within prose
	homes    []home  // "`name` in `file.go`"
	blocks   []block // fenced code
	links    []span  // targets
	text     string  // all of it
}

type heading struct {
	level  int
	anchor string // as forges make it
}

type span struct {
	line int
	text string
}

type home struct {
	line       int
	name, file string
}

type block struct {
	line     int // of its first line of code
	language string
	lines    []string
}

// readPages reads the pages at the root and everything below docs.
func readPages(root string) ([]page, error) {
	var pages []page
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name != "." && name != "docs" && !strings.HasPrefix(name, "docs/") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pages = append(pages, parsePage(name, string(raw)))
		return nil
	})
	return pages, err
}

var (
	fence       = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([A-Za-z]*)")
	headingLine = regexp.MustCompile(`^(#{1,6})\s+(.+?)\s*#*$`)
	codeSpan    = regexp.MustCompile("(`+)([^`].*?)`+")
	homeOfName  = regexp.MustCompile("`([\\w.]+)` in `([\\w./-]+\\.go)`")
	linkTarget  = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
)

func parsePage(name, text string) page {
	p := page{path: name, text: text}
	var open *block
	var closing string
	for n, line := range strings.Split(text, "\n") {
		number := n + 1
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, closing = &block{line: number + 1, language: m[2]}, m[1]
		case open != nil && m != nil && strings.HasPrefix(m[1], closing) && m[2] == "":
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		default:
			p.parseLine(number, line)
		}
	}
	return p
}

func (p *page) parseLine(number int, line string) {
	if m := headingLine.FindStringSubmatch(line); m != nil {
		p.headings = append(p.headings, heading{len(m[1]), anchor(m[2])})
	}
	for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
		p.spans = append(p.spans, span{number, strings.TrimSpace(m[2])})
	}
	for _, m := range homeOfName.FindAllStringSubmatch(line, -1) {
		p.homes = append(p.homes, home{number, m[1], m[2]})
	}
	for _, m := range linkTarget.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
		p.links = append(p.links, span{number, m[1]})
	}
}

// anchor spells a heading as GitHub does: lower case, blanks to dashes, and
// nothing but letters, digits, dashes and underscores.
func anchor(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteRune('-')
		}
	}
	return b.String()
}
