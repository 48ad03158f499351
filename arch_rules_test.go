package orderpaid_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// serviceFiles is what every service has, in reading order, each with the same
// role: a diff of two services shows their business and nothing else.
var serviceFiles = []string{"doc.go", "run.go", "http.go", "service.go", "domain.go", "store.go", "events.go", "consume.go"}

// ownFiles are what services have besides: ops.go, where there is something for
// operators to see and do, and each file of a single service for something that
// no other service does.
var ownFiles = map[string][]string{
	"order":   {"ops.go", "money.go", "webhook.go", "callback.go", "view.go", "exceptions.go", "retention.go", "store_callbacks.go", "store_catalogue.go", "store_exceptions.go"},
	"points":  {"ops.go"},
	"notify":  {"ops.go", "delivery.go", "smtp.go", "template.go", "health.go", "telemetry.go", "doubts.go"},
	"search":  {"ops.go", "tokenize.go", "rebuild.go", "rebuild_switch.go"},
	"console": {"pages.go", "board.go", "why.go", "live.go", "operate.go", "replays.go", "reconcile.go", "compare.go", "desk.go", "index.go", "shop.go", "checkout.go", "account.go", "visitor.go", "lang.go", "upstream.go", "telemetry.go"},
}

// pureFiles hold rules: what they compute depends on their arguments only, so
// their tests need no database and a replay years later computes the same.
var pureFiles = []string{"domain.go", "money.go", "tokenize.go"}

var pureImports = []string{
	"cmp", "errors", "fmt", "maps", "math", "math/bits", "regexp", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8",
	"github.com/google/uuid", "golang.org/x/text/cases", "golang.org/x/text/unicode/norm",
	"orderpaid/platform/strictjson",
}

// impureCalls ask the clock or the dice.
var impureCalls = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"uuid": {"New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7"},
}

// A tree is the repository, as far as the rules look at it. Folders that are
// modules of their own (bench, some tools) are not part of it.
type tree struct {
	fsys  fs.FS
	files []goFile
}

type goFile struct {
	path    string
	syntax  *ast.File
	imports []string
	lines   int
	set     *token.FileSet
}

func readTree(fsys fs.FS) (tree, error) {
	t := tree{fsys: fsys}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != ".":
			_, err := fs.Stat(fsys, path.Join(name, "go.mod"))
			if strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || err == nil {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go":
			return nil
		}
		file, err := readGo(fsys, name)
		t.files = append(t.files, file)
		return err
	})
	return t, err
}

func readGo(fsys fs.FS, name string) (goFile, error) {
	raw, err := fs.ReadFile(fsys, name)
	if err != nil {
		return goFile{}, err
	}
	f := goFile{path: name, lines: strings.Count(string(raw), "\n"), set: token.NewFileSet()}
	if f.syntax, err = parser.ParseFile(f.set, name, raw, parser.SkipObjectResolution); err != nil {
		return f, err
	}
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}

// service returns which service the file belongs to, or "".
func (f goFile) service() string {
	if parts := strings.Split(f.path, "/"); parts[0] == "services" && len(parts) > 2 {
		return parts[1]
	}
	return ""
}

func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// calls returns the calls of functions or methods with the name, as written.
func (f goFile) calls(matches func(text, name string) bool) (found []*ast.SelectorExpr) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
				receiver, _ := selector.X.(*ast.Ident)
				if receiver != nil && matches(receiver.Name, selector.Sel.Name) {
					found = append(found, selector)
				}
			}
		}
		return true
	})
	return found
}

// importing returns a finding for every import of the files that is forbidden.
func (t tree) importing(of func(goFile) bool, forbidden func(goFile, string) bool) (findings []string) {
	for _, f := range t.files {
		if !of(f) {
			continue
		}
		for _, imported := range f.imports {
			if forbidden(f, imported) {
				findings = append(findings, f.path+" imports "+imported)
			}
		}
	}
	return findings
}

// within reports whether a path is a folder or lies in it.
func within(name string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") })
}

func servicesStandAlone(t tree) []string {
	return t.importing(
		func(f goFile) bool { return f.service() != "" },
		func(f goFile, imported string) bool {
			if f.isTest() && imported == "orderpaid/demo/sim" {
				return false // the outside world: a mail server, a payment provider
			}
			return within(imported, "orderpaid/services", "orderpaid/cmd", "orderpaid/demo", "orderpaid/e2e", "orderpaid/shopctl") &&
				!within(imported, "orderpaid/services/"+f.service())
		})
}

func platformStandsAlone(t tree) []string {
	return t.importing(
		func(f goFile) bool { return within(f.path, "platform") },
		func(_ goFile, imported string) bool {
			return within(imported, "orderpaid") && !within(imported, "orderpaid/platform", "orderpaid/migrations")
		})
}

func dataStandsAlone(t tree) []string {
	return t.importing(
		func(f goFile) bool { return within(f.path, "contracts", "migrations") && !f.isTest() },
		func(_ goFile, imported string) bool { return within(imported, "orderpaid") })
}

func domainIsPure(t tree) []string {
	isPure := func(f goFile) bool { return f.service() != "" && slices.Contains(pureFiles, path.Base(f.path)) }
	findings := t.importing(isPure, func(_ goFile, imported string) bool { return !slices.Contains(pureImports, imported) })
	for _, f := range t.files {
		if !isPure(f) {
			continue
		}
		for _, call := range f.calls(func(of, name string) bool { return slices.Contains(impureCalls[of], name) }) {
			findings = append(findings, fmt.Sprintf("%s calls %s.%s", f.path, call.X, call.Sel.Name))
		}
	}
	return findings
}

func servicesLookAlike(t tree) (findings []string) {
	services := map[string][]string{}
	folders := map[string]bool{}
	for _, f := range t.files {
		s := f.service()
		if s == "" {
			continue
		}
		switch folder, name := path.Split(f.path); {
		case folder != "services/"+s+"/":
			folders[path.Clean(folder)] = true
		case !f.isTest():
			services[s] = append(services[s], name)
			if !slices.Contains(serviceFiles, name) && !slices.Contains(ownFiles[s], name) {
				findings = append(findings, fmt.Sprintf("%s is not a file that services have; if it is for something that only %s does, name it in ownFiles in arch_rules_test.go", f.path, s))
			}
		}
	}
	for s, names := range services {
		for _, name := range serviceFiles {
			if !slices.Contains(names, name) {
				findings = append(findings, fmt.Sprintf("services/%s has no %s", s, name))
			}
		}
	}
	for folder := range folders {
		findings = append(findings, folder+" is a folder within a service")
	}
	slices.Sort(findings)
	return findings
}

func edgeHasNoSQL(t tree) []string {
	return t.importing(
		func(f goFile) bool {
			return f.service() != "" && slices.Contains([]string{"http.go", "webhook.go", "view.go"}, path.Base(f.path))
		},
		func(_ goFile, imported string) bool { return within(imported, "github.com/jackc") })
}

// transactionsHaveOneRoom keeps transactions in the files of use cases, so that
// a reader finds what commits together in one function. The consumer opens the
// ones of consume.go.
func transactionsHaveOneRoom(t tree) (findings []string) {
	for _, f := range t.files {
		if f.service() == "" || f.isTest() || slices.Contains([]string{"service.go", "callback.go", "exceptions.go", "delivery.go", "doubts.go", "rebuild.go", "index.go"}, path.Base(f.path)) {
			continue
		}
		if len(f.calls(func(of, name string) bool { return of == "postgres" && name == "InTx" })) > 0 {
			findings = append(findings, f.path+" opens a transaction")
		}
	}
	return findings
}

// brokerIsBehindItsPort leaves the client of NATS to its adapter, to what runs
// or inspects servers, and to tests of those.
func brokerIsBehindItsPort(t tree) []string {
	return t.importing(
		func(f goFile) bool {
			return within(f.path, "services", "platform", "cmd") && !within(f.path, "platform/messaging/natsbroker", "platform/natstest", "platform/telemetry")
		},
		func(_ goFile, imported string) bool {
			return within(imported, "github.com/nats-io", "github.com/synadia-io")
		})
}

func mainsAreSmall(t tree) (findings []string) {
	hasMain := map[string]bool{}
	for _, f := range t.files {
		if folder := path.Dir(f.path); path.Dir(folder) == "cmd" {
			isMain := path.Base(f.path) == "main.go"
			hasMain[folder] = hasMain[folder] || isMain
			if isMain && f.lines > 45 {
				findings = append(findings, fmt.Sprintf("%s has %d lines", f.path, f.lines))
			}
		}
	}
	for folder, has := range hasMain {
		if !has {
			findings = append(findings, folder+" has no main.go")
		}
	}
	return findings
}

// contractsAreComplete compares the contracts with each other, with asyncapi.yaml
// and with the payload types of the services, which are those with a method Kind.
func contractsAreComplete(t tree) (findings []string) {
	const schema, example = ".schema.json", ".example.json"
	kinds := map[string]bool{}
	names, _ := fs.Glob(t.fsys, "contracts/*.v*.json") // the pattern is a constant
	for _, name := range names {
		kinds[strings.TrimSuffix(strings.TrimSuffix(path.Base(name), schema), example)] = true
	}
	asyncapi, _ := fs.ReadFile(t.fsys, "contracts/asyncapi.yaml") // if it is missing, it names nothing
	for kind := range kinds {
		for _, suffix := range []string{schema, example} {
			if _, err := fs.Stat(t.fsys, "contracts/"+kind+suffix); err != nil {
				findings = append(findings, "contracts/ has no "+kind+suffix)
			}
		}
		if !strings.Contains(string(asyncapi), kind) {
			findings = append(findings, "contracts/asyncapi.yaml does not name "+kind)
		}
	}
	for _, f := range t.files {
		if f.service() == "" || f.isTest() {
			continue
		}
		for _, payload := range payloads(f.syntax) {
			if !kinds[payload+".v1"] {
				findings = append(findings, fmt.Sprintf("%s has the kind %s, and contracts/ has none", f.path, payload))
			}
		}
	}
	slices.Sort(findings)
	return findings
}

// payloads returns the names of the types that have a method Kind.
func payloads(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		method, ok := decl.(*ast.FuncDecl)
		if !ok || method.Recv == nil || method.Name.Name != "Kind" {
			continue
		}
		if of, ok := method.Recv.List[0].Type.(*ast.Ident); ok {
			names = append(names, of.Name)
		}
	}
	return names
}

// testsAreHonest: a sleep makes a test slow when it is long enough and flaky
// when it is not; a skipped test is green and means nothing.
func testsAreHonest(t tree) (findings []string) {
	for _, f := range t.files {
		if !f.isTest() {
			continue
		}
		for _, call := range f.calls(func(of, name string) bool {
			return of == "time" && name == "Sleep" || slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name)
		}) {
			what := "skips"
			if call.Sel.Name == "Sleep" {
				what = "sleeps"
			}
			findings = append(findings, fmt.Sprintf("%s:%d %s", f.path, f.set.Position(call.Pos()).Line, what))
		}
	}
	return findings
}

// dependenciesHaveReasons: what the product imports from elsewhere is named by a
// page of docs/adr, which says why.
func dependenciesHaveReasons(t tree) (findings []string) {
	var reasons strings.Builder
	pages, _ := fs.Glob(t.fsys, "docs/adr/*.md") // the pattern is a constant
	for _, page := range pages {
		raw, _ := fs.ReadFile(t.fsys, page) // it was listed just now
		reasons.Write(raw)
	}
	for _, f := range t.files {
		for _, imported := range f.imports {
			if module := moduleOf(imported); module != "" && !strings.Contains(reasons.String(), module) {
				findings = append(findings, fmt.Sprintf("%s imports %s, which no page of docs/adr names", f.path, module))
			}
		}
	}
	return findings
}

// moduleOf returns the part of an import path that names a project of somebody
// else, or "" for the standard library and this module.
func moduleOf(imported string) string {
	parts := strings.Split(imported, "/")
	if !strings.Contains(parts[0], ".") {
		return ""
	}
	n := 2 // go.uber.org/goleak
	if parts[0] == "github.com" || parts[0] == "golang.org" {
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}

// toolModules are for measuring, comparing, linting and packing. They have
// modules of their own (bench, tools/…): whoever forks a service need not
// download, trust and update them.
var toolModules = []string{
	"github.com/fergusstrange/embedded-postgres", "github.com/testcontainers", "github.com/ory/dockertest", "github.com/golangci",
	"honnef.co/go/tools", "golang.org/x/perf", "golang.org/x/tools", "github.com/golang/mock", "go.uber.org/mock", "github.com/vektra",
	"github.com/ThreeDotsLabs/watermill", "github.com/riverqueue", "github.com/twmb/franz-go", "github.com/segmentio/kafka-go", "github.com/IBM/sarama",
	"github.com/rabbitmq", "github.com/redis", "github.com/tsenart/vegeta", "go.k6.io",
}

func moduleHasNoTools(t tree) (findings []string) {
	raw, err := fs.ReadFile(t.fsys, "go.mod")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		switch {
		case len(fields) > 0 && fields[0] == "tool":
			findings = append(findings, "go.mod has a tool directive")
		case len(fields) > 1 && within(fields[0], toolModules...):
			findings = append(findings, "go.mod requires "+fields[0])
		}
	}
	return findings
}
