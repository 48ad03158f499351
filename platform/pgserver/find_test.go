package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersionsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-1)\n": 15,
		"postgres (PostgreSQL) 17.0":                     17,
		"postgres (PostgreSQL) 18beta1":                  18,
		"postgres (PostgreSQL) 9.6.24":                   9,
	} {
		if got, err := parseMajor(text); got != want || err != nil {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "postgres", "postgres (PostgreSQL) devel"} {
		if got, err := parseMajor(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func TestNewestOfOnePlaceAndFirstPlaceWin(t *testing.T) {
	t.Parallel()
	pg14, pg15, pg17, pg16 := fakeBin(t, "14.9"), fakeBin(t, "15.18"), fakeBin(t, "17.2"), fakeBin(t, "16.1")
	found, err := search("", [][]string{{"/nowhere", pg14}, {pg15, pg17}, {pg16}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, in := range found {
		got = append(got, in.dir)
	}
	if want := []string{pg17, pg15, pg16}; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDataIsOpenedByTheVersionThatMadeIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	found := []installation{{"/pg17", 17}, {"/pg15", 15}}
	for _, test := range []struct{ version, want string }{{"", "/pg17"}, {"15\n", "/pg15"}, {"17\n", "/pg17"}, {"16\n", ""}} {
		if test.version != "" {
			if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(test.version), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := chooseBinaries(found, data)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("version %q: got %q, %v, want %q", test.version, got, err, test.want)
		}
	}
}

func TestMissingPostgreSQLSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	_, err := search("", [][]string{{t.TempDir()}})
	if !errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("got %v, want one line that says what to install", err)
	}
}

func TestChosenFolderIsTheOnlyOneLookedAt(t *testing.T) {
	t.Parallel()
	chosen, other := fakeBin(t, "15.1"), fakeBin(t, "17.2")
	found, err := search(chosen, [][]string{{other}})
	if err != nil || len(found) != 1 || found[0].dir != chosen {
		t.Errorf("got %v, %v, want %s alone", found, err, chosen)
	}
	for _, bad := range []string{t.TempDir(), "/nowhere", fakeBin(t, "14.9")} {
		if _, err := search(bad, [][]string{{other}}); err == nil || !strings.Contains(err.Error(), EnvBin) {
			t.Errorf("%s: got %v, want an error that names %s", bad, err, EnvBin)
		}
	}
}

// The package is asked not to create a cluster while it is installed, and only
// then. What apt-get really does cannot be shown without changing the machine.
func TestInstallDeclinesTheMainClusterMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := filepath.Join(dir, "createcluster.d")
	apt := writeScript(t, dir, "apt-get", `echo "$@ $(cat `+conf+`/orderpaid.conf)"`)
	var log strings.Builder
	if err := installWith(t.Context(), apt, conf, &log); err != nil {
		t.Fatal(err)
	}
	want := "update create_main_cluster = false\ninstall --yes --no-install-recommends postgresql create_main_cluster = false\n"
	if got := log.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if left, _ := filepath.Glob(conf + "/*"); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}

func TestFailedInstallIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	apt := writeScript(t, dir, "apt-get", `[ "$1" = update ]`)
	err := installWith(t.Context(), apt, filepath.Join(dir, "createcluster.d"), &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("got %v, want an error that names the step", err)
	}
}

// fakeBin returns a folder that looks like one of PostgreSQL's.
func fakeBin(t *testing.T, version string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	writeScript(t, dir, "initdb", "exit 1")
	writeScript(t, dir, "postgres", "echo 'postgres (PostgreSQL) "+version+"'")
	return dir
}

func writeScript(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
