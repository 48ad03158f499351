package doccheck

import (
	"path"
	"regexp"
	"strings"
)

// names looks up every name in a page's code.
func (s *sources) names(p page) []Finding {
	var findings []Finding
	report := func(line int, text string) {
		if text != "" {
			findings = append(findings, Finding{p.path, line, text})
		}
	}
	for _, sp := range p.spans {
		report(sp.line, s.judgeSpan(sp.text))
	}
	for _, h := range p.homes {
		if files := s.homes[h.name]; files != nil && !files[path.Base(h.file)] {
			report(h.line, quote(h.name)+" is not in "+quote(h.file))
		}
	}
	for _, b := range p.blocks {
		for i, line := range b.lines {
			switch b.language {
			case "sh", "bash":
				report(b.line+i, s.judgeCommand(line))
			case "go":
				report(b.line+i, s.judgeGo(line))
			case "sql":
				report(b.line+i, s.judgeSQL(line))
			}
		}
	}
	return findings
}

var verbRoute = regexp.MustCompile(`^(?:GET|POST|PUT|PATCH|DELETE) (/\S+)$`)

// judgeSpan returns what is wrong with a piece of code within prose, or "".
func (s *sources) judgeSpan(text string) string {
	if s.foreign[text] || strings.Contains(text, "://") {
		return ""
	}
	if m := verbRoute.FindStringSubmatch(text); m != nil {
		return s.judgeRoute(m[1])
	}
	if s.isCommand(text) {
		return s.judgeCommand(text)
	}
	for _, word := range tokens(text) {
		if problem := s.judgeToken(word); problem != "" {
			return problem
		}
	}
	return ""
}

var tokenPattern = regexp.MustCompile(`--[a-z][a-z0-9-]*|[A-Za-z0-9_./*{}-]+`)

// placeholder stands for any name: contracts/<Kind>.v1.schema.json.
var placeholder = regexp.MustCompile(`<[A-Za-z ]+>`)

func tokens(text string) []string {
	return tokenPattern.FindAllString(placeholder.ReplaceAllString(text, "*"), -1)
}

var (
	number    = regexp.MustCompile(`^[pv]?[0-9][0-9_.,a-zA-Z]*$`)
	fileName  = regexp.MustCompile(`^[\w*.-]+\.(go|sql|md|json|yaml|yml|mod|sum|sh|txt|conf)$|^(Makefile|Dockerfile|LICENSE)$`)
	dotted    = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$`)
	variable  = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)
	plainWord = regexp.MustCompile(`^\*?[A-Za-z_][A-Za-z0-9_-]*$`)
)

// judgeToken returns what is wrong with a single name, or "".
func (s *sources) judgeToken(word string) string {
	if flag, isFlag := strings.CutPrefix(word, "--"); isFlag {
		return missingUnless(s.anyFlag(flag), "flag", word)
	}
	word = strings.TrimLeft(strings.TrimRight(word, ".-*/"), "-*/")
	switch {
	case len(word) < 3 || number.MatchString(word) || s.foreign[word]:
		return ""
	case testName.MatchString(word):
		return missingUnless(s.tests[word], "test", word)
	case strings.Contains(word, "/"):
		return s.judgePath(word)
	case fileName.MatchString(word):
		return missingUnless(s.bases[word] || s.globbed(word), "file", word)
	case strings.HasPrefix(word, "shop."):
		return s.judgeAll(word, strings.Split(word, "."))
	case dotted.MatchString(word):
		return s.judgeDotted(word)
	case variable.MatchString(word):
		return missingUnless(s.words[word], "environment variable or constant", word)
	case strings.Contains(word, "_"):
		return missingUnless(s.words[metric(word)] || s.decls[word], "table, column, metric or field", word)
	case plainWord.MatchString(word):
		return s.judgeWord(word)
	}
	return ""
}

// metric takes off what Prometheus appends to the name of an instrument.
func metric(word string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum", "_total", "_seconds"} {
		if strings.HasPrefix(word, "shop_") {
			word = strings.TrimSuffix(word, suffix)
		}
	}
	return word
}

// judgeWord looks up a name without a shape that tells what it is.
func (s *sources) judgeWord(word string) string {
	if s.words[word] || s.decls[word] || s.bases[word] {
		return ""
	}
	parts := strings.Split(word, "-")
	for _, part := range parts { // points-awarder, docker-compose
		if len(part) > 2 && !s.words[part] && !s.decls[part] {
			return "nothing is called " + quote(word)
		}
	}
	return missingUnless(len(parts) > 1, "name", word)
}

// judgeDotted looks up messaging.Outbox.Add, Outbox.Add or relay_lease.epoch.
func (s *sources) judgeDotted(word string) string {
	if s.decls[word] || s.foreign[word] {
		return ""
	}
	parts := strings.Split(word, ".")
	for _, part := range parts {
		if strings.Contains(part, "_") {
			return s.judgeAll(word, parts)
		}
	}
	return "there is no " + quote(word)
}

func (s *sources) judgeAll(word string, parts []string) string {
	for _, part := range parts {
		if len(part) > 2 && !number.MatchString(part) && !s.words[part] && !s.decls[part] {
			return "there is no " + quote(part) + " as in " + quote(word)
		}
	}
	return ""
}

func (s *sources) judgePath(word string) string {
	first, _, _ := strings.Cut(word, "/")
	switch {
	case s.files[word] || s.globbed(word) || s.imports[word]:
		return ""
	case s.routes[plainRoute("/"+word)]:
		return ""
	case strings.Contains(first, ".") && first != ".ci" && first != ".orderpaid": // an import path
		return missingUnless(s.imported(word), "import", word)
	case first == ".orderpaid":
		program, isProgram := strings.CutPrefix(word, ".orderpaid/bin/")
		return missingUnless(!isProgram || s.files["cmd/"+program], "program", word)
	case strings.HasPrefix(word, "orderpaid/"):
		return missingUnless(s.files[strings.TrimPrefix(word, "orderpaid/")], "package", word)
	}
	return "there is no file or route " + quote(word)
}

func (s *sources) imported(word string) bool {
	for module := range s.modules {
		if word == module || strings.HasPrefix(word, module+"/") || strings.HasPrefix(module, word+"/") {
			return true
		}
	}
	return false
}

// globbed reports whether a pattern such as contracts/*.schema.json, or a path
// that leaves out folders at its front, has a file.
func (s *sources) globbed(pattern string) bool {
	for file := range s.files {
		if ok, _ := path.Match(pattern, file); ok || strings.HasSuffix(file, "/"+pattern) {
			return true
		}
		if ok, _ := path.Match(pattern, path.Base(file)); ok {
			return true
		}
	}
	return false
}

var routeVariable = regexp.MustCompile(`\{[^}]*\}`)

// plainRoute takes the names out of a route's variables, and what is no part
// of a route off its end.
func plainRoute(route string) string {
	route, _, _ = strings.Cut(route, "?")
	return strings.TrimSuffix(routeVariable.ReplaceAllString(route, "{}"), "/")
}

func (s *sources) judgeRoute(route string) string {
	return missingUnless(s.routes[plainRoute(route)], "route", route)
}

var (
	ourSelector = regexp.MustCompile(`\b([a-z]\w*)\.([A-Z]\w*)`)
	goComment   = regexp.MustCompile(`//.*`)
)

// judgeGo looks up qualified names in a line of Go.
func (s *sources) judgeGo(line string) string {
	for _, m := range ourSelector.FindAllStringSubmatch(goComment.ReplaceAllString(line, ""), -1) {
		if !s.decls[m[0]] && !s.decls[m[2]] && !s.foreign[m[0]] {
			return "there is no " + quote(m[0])
		}
	}
	return ""
}

var sqlName = regexp.MustCompile(`\b[a-z][a-z0-9]*_[a-z0-9_]+\b`)

// judgeSQL looks up the names with an underscore in a line of SQL.
func (s *sources) judgeSQL(line string) string {
	for _, name := range sqlName.FindAllString(sqlComment.ReplaceAllString(line, ""), -1) {
		if !s.words[name] && !s.foreign[name] {
			return "there is no table or column " + quote(name)
		}
	}
	return ""
}

func missingUnless(exists bool, what, name string) string {
	if exists {
		return ""
	}
	return "there is no " + what + " " + quote(name)
}

func quote(s string) string { return "`" + s + "`" }
