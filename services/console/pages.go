package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static/*
var staticFiles embed.FS

// A pageSet holds all pages in one language.
type pageSet struct {
	texts     catalogue
	templates map[string]*template.Template // by file name without .html
}

// loadPages parses every page once per language: texts are looked up while a
// page is written, and a page that does not parse stops the service at start.
func loadPages() (map[string]*pageSet, error) {
	version, err := staticVersion()
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	sets := map[string]*pageSet{}
	for _, language := range languages {
		texts, err := loadCatalogue(language)
		if err != nil {
			return nil, err
		}
		set := &pageSet{texts: texts, templates: map[string]*template.Template{}}
		base, err := template.New("layout.html").Funcs(pageFuncs(language, texts, version)).
			ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
		if err != nil {
			return nil, fmt.Errorf("pages: %w", err)
		}
		for _, file := range names {
			name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
			if name == "layout" || name == "parts" {
				continue
			}
			clone, err := base.Clone()
			if err != nil {
				return nil, fmt.Errorf("pages: %w", err)
			}
			if set.templates[name], err = clone.ParseFS(templateFiles, file); err != nil {
				return nil, fmt.Errorf("pages: %w", err)
			}
		}
		sets[language] = set
	}
	return sets, nil
}

// staticVersion names the static files by their content, so that browsers may
// keep them for ever and never keep an old one.
func staticVersion() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(staticFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := staticFiles.ReadFile(path)
		sum.Write(raw)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}

// serveStatic serves /static/{version}/{file}.
func serveStatic(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeFileFS(w, r, staticFiles, "static/"+r.PathValue("file"))
}

// pageFuncs are what templates may call. None of them returns template.HTML:
// everything that a page shows is escaped.
func pageFuncs(language string, texts catalogue, version string) template.FuncMap {
	return template.FuncMap{
		"t":      texts.text,
		"word":   texts.word,
		"static": func(file string) string { return "/static/" + version + "/" + file },
		"lang":   func() string { return language },
		"title":  func(titles Titles) Title { return titles.in(language) },
		"ago":    func(at time.Time) string { return texts.ago(time.Since(at)) },
		"span":   texts.span,
		"secs":   func(s float64) string { return texts.span(time.Duration(s * float64(time.Second))) },
		"clock":  func(at time.Time) string { return at.UTC().Format("15:04:05") },
		"stamp":  func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") },
		"millis": func(at time.Time) string { return at.UTC().Format("15:04:05.000") },
		"iso":    func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
		"short":  short,
		"rate":   func(perSecond float64) string { return fmt.Sprintf("%.1f", perSecond) },
		"bytes":  size,
		"bars":   chart,
		"dict":   dict,
		"seq":    func(from, to int) []int { return sequence(from, to) },
	}
}

// short shows the beginning and the end of an id, of which the page's link or
// title has the rest.
func short(id string) string {
	if len(id) <= 14 {
		return id
	}
	return id[:7] + "…" + id[len(id)-5:]
}

func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}

// dict makes a map of names and values, for templates that call templates.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

func sequence(from, to int) []int {
	var list []int
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// span writes a duration as a person would say it.
func (c catalogue) span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return c.text("span.seconds", d.Seconds())
	case d < 2*time.Minute:
		return c.text("span.whole_seconds", int(d.Seconds()))
	case d < 2*time.Hour:
		return c.text("span.minutes", int(d.Minutes()))
	case d < 48*time.Hour:
		return c.text("span.hours", int(d.Hours()))
	default:
		return c.text("span.days", int(d.Hours()/24))
	}
}

func (c catalogue) ago(d time.Duration) string { return c.text("ago", c.span(d)) }

// A bar of a chart, in the units of its viewBox.
type bar struct{ X, Y, H float64 }

// chart places counts as bars of 8 units each in a box that is 24 high.
func chart(minutes []Minute, what string) []bar {
	counts := make([]int64, len(minutes))
	for i, m := range minutes {
		counts[i] = map[string]int64{"paid": m.Paid, "credited": m.Credited, "mailed": m.Mailed, "indexed": m.Indexed}[what]
	}
	list := make([]bar, len(counts))
	for i, h := range bars(counts, 24) {
		list[i] = bar{float64(i * 8), 24 - h, h}
	}
	return list
}

// A view is what every page is made from.
type view struct {
	Lang    string
	Nav     string // which entry of the navigation is the present one
	Path    string // of this page, for the language switch
	Refresh int    // seconds after which a browser without scripts loads it again; 0 never
	Visitor visitor
	Waiting int  // decisions that only a person can take
	Demo    bool // there is a simulated world outside
	Notice  string
	Data    any
}

// pageCSP lets a page load this server's own style, script and images, open
// streams to it and send forms to it, and nothing else. There is no inline
// script and no inline style, so an escape that was missed still does nothing.
const pageCSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// render writes a page. It is made in memory first: a page that fails in the
// middle becomes a 500 and not half a page.
func (s *Service) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.Lang, v.Path = languageOf(r), r.URL.RequestURI()
	if r.Method != http.MethodGet {
		v.Path = "/"
	}
	v.Visitor, v.Waiting, v.Demo = visitorOf(r), s.waiting(), s.sim.base != ""
	if v.Notice == "" {
		v.Notice = takeNotice(w, r)
	}
	var body bytes.Buffer
	if err := s.pages[v.Lang].templates[name].ExecuteTemplate(&body, "layout.html", v); err != nil {
		slog.ErrorContext(r.Context(), "page cannot be written", "page", name, "error", err)
		http.Error(w, "this page cannot be shown", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pageCSP)
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the visitor has gone: nobody is left to tell
}

// part writes one template of a page, for a stream.
func (s *Service) part(language, page, part string, data any) (string, error) {
	var body bytes.Buffer
	if err := s.pages[language].templates[page].ExecuteTemplate(&body, part, data); err != nil {
		return "", fmt.Errorf("write %s: %w", part, err)
	}
	return body.String(), nil
}

// text returns a text in the visitor's language.
func (s *Service) text(r *http.Request, key string, args ...any) string {
	return s.pages[languageOf(r)].texts.text(key, args...)
}
