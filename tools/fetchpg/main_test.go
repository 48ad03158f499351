package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

const testVersion = "17.99.0"

func TestBinariesAreFetchedFromTheGivenRepositoryOnce(t *testing.T) {
	t.Parallel()
	repository, requests := serve(t, packInstalled(t), nil)
	program := build(t)
	for _, who := range users() {
		t.Run(who.name, func(t *testing.T) {
			dir := filepath.Join(sharedDir(t), "postgresql")
			requests.Store(0)
			for _, want := range []int32{2, 0} { // archive and checksum; the second time nothing
				out, err := fetchAs(program, who, envRepository+"="+repository, "--version", testVersion, dir)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := strings.TrimSpace(out), filepath.Join(dir, "bin"); got != want {
					t.Errorf("got output %q, want %q", got, want)
				}
				if got := requests.Swap(0); got != want {
					t.Errorf("got %d requests, want %d", got, want)
				}
			}
			version, err := exec.Command(filepath.Join(dir, "bin", "postgres"), "--version").Output()
			if err != nil || !strings.HasPrefix(string(version), "postgres (PostgreSQL)") {
				t.Errorf("the fetched postgres says %q, %v", version, err)
			}
			if left := names(t, filepath.Dir(dir)); len(left) != 1 {
				t.Errorf("got %v beside the binaries, want nothing", left)
			}
		})
	}
}

func TestNothingIsLeftWhenFetchingFails(t *testing.T) {
	t.Parallel()
	packed := packInstalled(t)
	repository, _ := serve(t, packed, nil)
	tampered, _ := serve(t, packed, []byte("0000"))
	program := build(t)
	for name, test := range map[string]struct{ repository, version, want string }{
		"no such version":   {repository, "1.2.3", "no version found"},
		"wrong checksum":    {tampered, testVersion, "checksums do not match"},
		"nobody is serving": {"http://127.0.0.1:1", testVersion, "unable to connect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			_, err := fetchAs(program, runner{}, "", "--repository", test.repository, "--version", test.version, filepath.Join(parent, "postgresql"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if left := names(t, parent); len(left) != 0 {
				t.Errorf("got %v left behind, want nothing", left)
			}
		})
	}
}

func TestHelpAndWrongArguments(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	if _, err := run(t.Context(), []string{"--help"}, &help); err == nil || !strings.Contains(help.String(), "usage: fetchpg") {
		t.Errorf("got %v and %q, want the usage", err, help.String())
	}
	for _, args := range [][]string{nil, {"a", "b"}, {"--nosuch", "a"}} {
		if _, err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v: got no error", args)
		}
	}
}

// A runner is the user that a fetch runs as.
type runner struct {
	name       string
	credential *syscall.Credential
}

// users returns whom to try: as root also an ordinary user, for whom the tool
// is made; the library starts a server for one and cannot for the other.
func users() []runner {
	if os.Geteuid() != 0 {
		return []runner{{name: "ordinary user"}}
	}
	return []runner{{name: "root"}, {name: "ordinary user", credential: &syscall.Credential{Uid: 65534, Gid: 65534}}}
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(sharedDir(t), "fetchpg")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func fetchAs(program string, who runner, env string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who.credential}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), nil
}

// serve is a Maven repository with one version of the binaries, for this
// machine, whatever that is. sum replaces the checksum.
func serve(t *testing.T, jar, sum []byte) (url string, requests *atomic.Int32) {
	t.Helper()
	if sum == nil {
		digest := sha256.Sum256(jar)
		sum = []byte(hex.EncodeToString(digest[:]))
	}
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		known := strings.HasPrefix(r.URL.Path, "/maven/io/zonky/test/postgres/embedded-postgres-binaries-") &&
			strings.Contains(r.URL.Path, "/"+testVersion+"/")
		switch {
		case known && strings.HasSuffix(r.URL.Path, "-"+testVersion+".jar"):
			_, _ = w.Write(jar)
		case known && strings.HasSuffix(r.URL.Path, "-"+testVersion+".jar.sha256"):
			_, _ = w.Write(sum)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/maven/", requests
}

// packInstalled packs this machine's PostgreSQL as the repository does: a zip
// with one tar.xz of bin. Its libraries are found where they are installed.
func packInstalled(t *testing.T) []byte {
	t.Helper()
	tree := t.TempDir()
	if err := os.Mkdir(filepath.Join(tree, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		program, err := os.ReadFile(filepath.Join(installedBin(t), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, "bin", name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	archive := exec.Command("tar", "-C", tree, "-cJf", "-", "bin")
	archive.Env = append(os.Environ(), "XZ_OPT=-0")
	packed, err := archive.Output()
	if err != nil {
		t.Fatalf("pack with tar and xz: %v", err)
	}
	var jar bytes.Buffer
	writer := zip.NewWriter(&jar)
	entry, err := writer.Create("postgres.txz")
	if err == nil {
		_, err = entry.Write(packed)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}

// installedBin finds the PostgreSQL to pack.
func installedBin(t *testing.T) string {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	dirs = append([]string{os.Getenv("ORDERPAID_PG_BIN")}, dirs...)
	for _, dir := range append(dirs, filepath.SplitList(os.Getenv("PATH"))...) {
		if dir != "" && answers(t.Context(), dir) == nil {
			return dir
		}
	}
	t.Fatal("this test packs an installed PostgreSQL, and there is none")
	return ""
}

// sharedDir returns a folder that every user may write to, and that goes with
// the test.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fetchpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
