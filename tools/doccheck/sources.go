package doccheck

import (
	"bufio"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// sources is what exists, apart from the documentation.
type sources struct {
	files   map[string]bool            // files and folders, relative to the root
	bases   map[string]bool            // the last element of each
	decls   map[string]bool            // Outbox, Outbox.Add, messaging.Outbox, messaging.Outbox.Add, sqlStage
	homes   map[string]map[string]bool // of each declared name: base names of the files that declare it
	tests   map[string]bool            // tests, fuzz tests, benchmarks and examples
	words   map[string]bool            // words of Go code, string literals, SQL, JSON, YAML and scripts
	routes  map[string]bool            // /v1/orders/{}
	flags   map[string]map[string]bool // by folder: what a Go program there understands
	verbs   map[string]map[string]bool // by folder: its subcommands
	spelled map[string]map[string]bool // by script or program: flags that its text spells out
	targets map[string]bool            // of the Makefile
	imports map[string]bool            // packages that are imported somewhere
	relied  map[string]bool            // those of them that a program needs: not what bench measures and deploy/check reads
	modules map[string]bool            // of others, from every go.mod
	foreign map[string]bool
}

//go:embed foreign.txt
var foreignWords string

// skipped are folders that hold nothing of ours.
var skipped = map[string]bool{".git": true, ".orderpaid": true, "node_modules": true}

func readSources(root string) (*sources, error) {
	s := &sources{files: map[string]bool{}, bases: map[string]bool{}, decls: map[string]bool{}, homes: map[string]map[string]bool{}, tests: map[string]bool{},
		words: map[string]bool{}, routes: map[string]bool{}, flags: map[string]map[string]bool{}, verbs: map[string]map[string]bool{},
		spelled: map[string]map[string]bool{},
		targets: map[string]bool{}, imports: map[string]bool{}, relied: map[string]bool{}, modules: map[string]bool{}, foreign: map[string]bool{}}
	for line := range strings.Lines(foreignWords) {
		if word, _, _ := strings.Cut(line, "#"); strings.TrimSpace(word) != "" {
			s.foreign[strings.TrimSpace(word)] = true
		}
	}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && skipped[entry.Name()] {
			return fs.SkipDir
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		s.files[name], s.bases[path.Base(name)] = true, true
		if entry.IsDir() {
			return nil
		}
		return s.readFile(file, name)
	})
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	return s, nil
}

var (
	sqlComment   = regexp.MustCompile(`--[^\n]*`)
	shellComment = regexp.MustCompile(`(?m)^\s*#[^\n]*|\s#\s[^\n]*`)
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	moduleLine   = regexp.MustCompile(`(?m)^(?:require |tool )?\s*([a-z0-9.-]+\.[a-z]+/\S+)(?: v\S+)?`)
)

// readFile takes from a file what it says. The checker itself says nothing: its
// tests are full of names that do not exist.
func (s *sources) readFile(file, name string) error {
	ext := path.Ext(name)
	script := ext == "" && (strings.HasPrefix(name, "scripts/") || strings.HasPrefix(name, ".ci/"))
	kept := ext == ".go" || ext == ".sql" || ext == ".json" || ext == ".yaml" || ext == ".yml" || ext == ".mod" || ext == ".sh" ||
		script || name == "Makefile" || name == "Dockerfile"
	if !kept || strings.HasPrefix(name, "tools/doccheck/") {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(raw)
	switch {
	case ext == ".go":
		return s.readGo(file, name)
	case ext == ".mod":
		for _, m := range moduleLine.FindAllStringSubmatch(text, -1) {
			s.modules[m[1]] = true
		}
	case ext == ".sql":
		s.addWords(sqlComment.ReplaceAllString(text, ""))
	case ext == ".json":
		s.addWords(text)
	default:
		if name == "Makefile" {
			for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
				s.targets[m[1]] = true
			}
		}
		text = shellComment.ReplaceAllString(text, "")
		s.addWords(text)
		s.addSpelled(name, text)
	}
	return nil
}

var spelledFlag = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)

// addSpelled notes the flags in the text of a script, or in the usage of a
// program that does not use kong.
func (s *sources) addSpelled(name, text string) {
	for _, m := range spelledFlag.FindAllStringSubmatch(text, -1) {
		put(s.spelled, name, m[1])
	}
}

var wordPattern = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)

func (s *sources) addWords(text string) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		for _, word := range wordPattern.FindAllString(lines.Text(), -1) {
			s.words[word] = true
		}
	}
}

var (
	testName  = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z_]`)
	routeText = regexp.MustCompile(`^(?:(?:GET|POST|PUT|PATCH|DELETE) )?(/[A-Za-z0-9_{}./-]+)$`)
)

func (s *sources) readGo(file, name string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	pkg, dir := strings.TrimSuffix(parsed.Name.Name, "_test"), path.Dir(name)
	usesProcess := dir == "platform/process"
	for _, spec := range parsed.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		usesProcess = usesProcess || imported == "orderpaid/platform/process"
		s.imports[imported] = true
		if !strings.HasPrefix(name, "bench/") && !strings.HasPrefix(name, "deploy/check/") {
			s.relied[imported] = true
		}
	}
	for _, decl := range parsed.Decls {
		s.addDecl(pkg, path.Base(name), decl)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			s.words[n.Name] = true
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok { // pgx.Tx: a name of another package that is used here
				s.decls[x.Name+"."+n.Sel.Name] = true
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				s.addFlag(dir, field, usesProcess)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				s.addLiteral(n.Value)
				if strings.HasPrefix(name, "tools/") && !strings.HasSuffix(name, "_test.go") {
					s.addSpelled(name, n.Value)
				}
			}
		}
		return true
	})
	return nil
}

func (s *sources) addLiteral(quoted string) {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return
	}
	if m := routeText.FindStringSubmatch(text); m != nil {
		s.routes[plainRoute(m[1])] = true
	}
	if strings.Contains(text, "INSERT") || strings.Contains(text, "SELECT") {
		text = sqlComment.ReplaceAllString(text, "")
	}
	s.addWords(text)
}

// addDecl notes what a declaration makes nameable, with and without its package.
func (s *sources) addDecl(pkg, file string, decl ast.Decl) {
	add := func(name string) {
		s.decls[name], s.decls[pkg+"."+name] = true, true
		put(s.homes, name, file)
		put(s.homes, pkg+"."+name, file)
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv == nil {
			add(name)
			if testName.MatchString(name) {
				s.tests[name] = true
			}
			return
		}
		s.decls[name] = true // as people say it: "Publish"
		add(receiver(d.Recv.List[0].Type) + "." + name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(name.Name)
				}
			case *ast.TypeSpec:
				add(spec.Name.Name)
				s.addMembers(spec, add)
			}
		}
	}
}

func (s *sources) addMembers(spec *ast.TypeSpec, add func(string)) {
	var members []*ast.Field
	switch t := spec.Type.(type) {
	case *ast.StructType:
		members = t.Fields.List
	case *ast.InterfaceType:
		members = t.Methods.List
	}
	for _, m := range members {
		for _, name := range m.Names {
			s.decls[name.Name] = true
			add(spec.Name.Name + "." + name.Name)
		}
	}
}

func receiver(expr ast.Expr) string {
	switch t := expr.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// addFlag notes a field that kong turns into a flag, an environment variable
// or a subcommand.
func (s *sources) addFlag(dir string, field *ast.Field, usesProcess bool) {
	if field.Tag == nil || len(field.Names) == 0 {
		return
	}
	quoted, _ := strconv.Unquote(field.Tag.Value)
	tag := reflect.StructTag(quoted)
	name := tag.Get("name")
	if name == "" {
		name = kebab(field.Names[0].Name)
	}
	if _, isVerb := tag.Lookup("cmd"); isVerb {
		put(s.verbs, dir, name)
		return
	}
	if tag.Get("help") == "" {
		return
	}
	put(s.flags, dir, name)
	if tag.Get("env") == "" && usesProcess { // process.Main derives one
		s.words[strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = true
	}
}

func put(sets map[string]map[string]bool, key, value string) {
	if sets[key] == nil {
		sets[key] = map[string]bool{}
	}
	sets[key][value] = true
}

var wordBreak = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// kebab spells a Go name as kong spells its flag: DeadLetters, dead-letters.
func kebab(name string) string {
	return strings.ToLower(wordBreak.ReplaceAllString(name, "$1$3-$2$4"))
}
