package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const found = `{"SBOM":{"go_version":"go1.26.8"}}
{"osv":{"id":"GO-2026-0001","summary":"Something in net/http"}} {"osv":{"id":"GO-2026-0002","summary":"Something else"}}
{"finding":{"osv":"GO-2026-0001","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8"}]}}
{"finding":{"osv":"GO-2026-0001","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http"}]}}
{"finding":{"osv":"GO-2026-0002","fixed_version":"v1.26.10","trace":[{"module":"stdlib","version":"v1.26.8","package":"os"}]}}
`

func TestGoItselfIsShownWithTheVersionThatMendsItAndFailsNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	bad, err := report(strings.NewReader(found), &out)
	if bad || err != nil {
		t.Errorf("got %v, %v; want neither", bad, err)
	}
	for _, want := range []string{"go1.26.8: 2 known", "GO-2026-0001  net/http  (fixed in v1.26.9)", "Something in net/http", "with go1.26.10 or newer"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want it to say %q", out.String(), want)
		}
	}
}

func TestAModuleThatIsRequiredButNotImportedFailsNothing(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	bad, err := report(strings.NewReader(`{"SBOM":{"go_version":"go1.26.8"}}
		{"finding":{"osv":"GO-2026-0003","trace":[{"module":"example.com/a","version":"v1.0.0"}]}}`), &out)
	if bad || err != nil || out.Len() > 0 {
		t.Errorf("got %v, %v, %q; want nothing", bad, err, out.String())
	}
}

// An empty answer must not pass for a clean one.
func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{}", `{"SBOM":`, "Scanning your code"} {
		if _, err := report(strings.NewReader(text), new(strings.Builder)); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

// The whole way, with the real govulncheck: a program that imports an old module
// fails, and the module that nothing is known of does not.
func TestAProgramWithAnOldModuleFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	govulncheck := filepath.Join(dir, "govulncheck")
	run(t, ".", nil, "go", "build", "-o", govulncheck, "golang.org/x/vuln/cmd/govulncheck")
	database := filepath.Join(dir, "database")
	lay(t, dir, "osv/GO-2026-0009.json", `{"schema_version":"1.3.1","id":"GO-2026-0009","modified":"2026-01-02T03:04:05Z","summary":"Everything is read","affected":[
		{"package":{"name":"example.com/old","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.2.0"}]}],
		 "ecosystem_specific":{"imports":[{"path":"example.com/old"}]}}]}`)
	if err := write(filepath.Join(dir, "osv"), database); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"v1.1.0", "v1.2.0"} {
		publish(t, filepath.Join(dir, "proxy", "example.com", "old", "@v"), v)
	}
	env := append(os.Environ(), "GOPROXY=file://"+filepath.Join(dir, "proxy"), "GONOSUMDB=*", "GONOSUMCHECK=1", "GOFLAGS=-mod=mod -modcacherw",
		"GOMODCACHE="+filepath.Join(dir, "cache"))
	for v, want := range map[string]bool{"v1.1.0": true, "v1.2.0": false} {
		program := filepath.Join(dir, "program-"+v)
		lay(t, program, "go.mod", "module example.com/program\n\ngo 1.26\n\nrequire example.com/old "+v+"\n")
		lay(t, program, "main.go", "package main\n\nimport \"example.com/old\"\n\nfunc main() { old.Read() }\n")
		findings := run(t, program, env, govulncheck, "-db", "file://"+database, "-scan", "package", "-format", "json", ".")
		var out strings.Builder
		bad, err := report(bytes.NewReader(findings), &out)
		if err != nil || bad != want {
			t.Errorf("%s: got %v, %v, %s; want %v", v, bad, err, out.String(), want)
		}
		if want && !strings.Contains(out.String(), "go get example.com/old@v1.2.0") {
			t.Errorf("got %s, want it to say what to do", out.String())
		}
	}
}

// publish puts a version of the module example.com/old where a proxy has it.
func publish(t *testing.T, dir, v string) {
	t.Helper()
	const mod = "module example.com/old\n\ngo 1.26\n"
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, text := range map[string]string{"go.mod": mod, "old.go": "// Package old reads.\npackage old\n\n// Read reads.\nfunc Read() {}\n"} {
		f, err := w.Create("example.com/old@" + v + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lay(t, dir, v+".info", `{"Version":"`+v+`","Time":"2026-01-01T00:00:00Z"}`)
	lay(t, dir, v+".mod", mod)
	lay(t, dir, v+".zip", archive.String())
}

func lay(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// run returns what a command wrote.
func run(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, failure.String())
	}
	return out
}
