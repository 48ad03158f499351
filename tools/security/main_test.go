package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheIndexNamesEveryModuleWithItsLastFix(t *testing.T) {
	t.Parallel()
	osv, dir := t.TempDir(), t.TempDir()
	const raw = `{"id":"GO-2026-0001","modified":"2026-01-02T03:04:05Z","affected":[
		{"package":{"name":"example.com/a"},"ranges":[{"events":[{"introduced":"0"},{"fixed":"1.2.0"},{"introduced":"1.3.0"},{"fixed":"1.3.1"}]}]},
		{"package":{"name":"example.com/b"},"ranges":[{"events":[{"introduced":"0"}]}]}]}`
	if err := os.WriteFile(filepath.Join(osv, "GO-2026-0001.json"), []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(osv, dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "index", "modules.json"))
	want := `[{"path":"example.com/a","vulns":[{"id":"GO-2026-0001","modified":"2026-01-02T03:04:05Z","fixed":"1.3.1"}]},` +
		`{"path":"example.com/b","vulns":[{"id":"GO-2026-0001","modified":"2026-01-02T03:04:05Z"}]}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if err := write(filepath.Join(osv, "nowhere"), dir); err == nil || !strings.Contains(err.Error(), "0 reports") {
		t.Errorf("without reports: got %v, want an error", err)
	}
}
