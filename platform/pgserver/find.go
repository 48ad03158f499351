package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EnvBin names the environment variable that points at the folder with initdb
// and postgres. If it is set, nothing else is looked at.
const EnvBin = "ORDERPAID_PG_BIN"

// oldestMajor is the oldest version that the migrations run on.
const oldestMajor = 15

// ErrNotFound says that there is no usable PostgreSQL on this machine. Its
// text says what to install.
var ErrNotFound = errors.New("no PostgreSQL 15 or newer found: install it (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql@17), or set " + EnvBin + " to the folder that holds initdb and postgres")

// Find returns the folder with the binaries of the newest PostgreSQL in the
// first of these places that has one: ORDERPAID_PG_BIN, PATH, and where
// Debian, Homebrew, the PostgreSQL RPMs and Postgres.app put them.
func Find() (binDir string, err error) {
	found, err := findAll()
	if err != nil {
		return "", err
	}
	return found[0].dir, nil
}

// An installation is a folder with binaries and their major version.
type installation struct {
	dir   string
	major int
}

// findAll returns every usable installation, best first, and at least one.
func findAll() ([]installation, error) {
	return search(os.Getenv(EnvBin), places())
}

func search(chosen string, places [][]string) ([]installation, error) {
	if chosen != "" {
		in, err := inspect(chosen)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", EnvBin, chosen, err)
		}
		return []installation{in}, nil
	}
	var all []installation
	for _, place := range places {
		var here []installation
		for _, dir := range place {
			if in, err := inspect(dir); err == nil {
				here = append(here, in)
			}
		}
		slices.SortStableFunc(here, func(a, b installation) int { return b.major - a.major })
		all = append(all, here...)
	}
	if len(all) == 0 {
		return nil, ErrNotFound
	}
	return all, nil
}

// places returns the folders to look into; those of one place together, so
// that the newest of them is taken.
func places() [][]string {
	out := [][]string{filepath.SplitList(os.Getenv("PATH"))}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                       // Debian, Ubuntu
		"/opt/homebrew/opt/postgresql@*/bin",              // Homebrew, Apple silicon
		"/usr/local/opt/postgresql@*/bin",                 // Homebrew, Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin", // Homebrew, Linux
		"/usr/pgsql-*/bin",                                // RPMs of postgresql.org
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		dirs, _ := filepath.Glob(pattern) // the only error is a bad pattern
		out = append(out, dirs)
	}
	return out
}

// inspectTimeout bounds the question for a version: PATH may hold a folder on
// a disk that does not answer.
const inspectTimeout = 5 * time.Second

// inspect asks the binaries in a folder for their version.
func inspect(dir string) (installation, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return installation{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return installation{}, fmt.Errorf("ask postgres for its version: %w", err)
	}
	major, err := parseMajor(string(out))
	if err != nil {
		return installation{}, err
	}
	if major < oldestMajor {
		return installation{}, fmt.Errorf("PostgreSQL %d is too old, %d is the oldest supported", major, oldestMajor)
	}
	// initdb looks for postgres and its shared files beside itself, and
	// Homebrew's folders are links.
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return installation{}, err
	}
	return installation{dir: resolved, major: major}, nil
}

// parseMajor reads "postgres (PostgreSQL) 15.18 (Debian 15.18-1)", also of a
// beta ("18beta1").
func parseMajor(version string) (int, error) {
	_, rest, _ := strings.Cut(version, "(PostgreSQL) ")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err := strconv.Atoi(rest[:end])
	if err != nil {
		return 0, fmt.Errorf("cannot read the version in %q", strings.TrimSpace(version))
	}
	return major, nil
}

// Install installs PostgreSQL with apt-get, which takes root on Debian or
// Ubuntu. Elsewhere it returns an error that says what to do. What apt-get
// prints goes to log.
func Install(ctx context.Context, log io.Writer) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return ErrNotFound
	}
	return installWith(ctx, apt, "/etc/postgresql-common/createcluster.d", log)
}

func installWith(ctx context.Context, apt, createclusterDir string, log io.Writer) error {
	restore, err := declineMainCluster(createclusterDir)
	if err != nil {
		return fmt.Errorf("install PostgreSQL: %w", err)
	}
	defer restore()
	for _, args := range [][]string{
		{"update"},
		{"install", "--yes", "--no-install-recommends", "postgresql"},
	} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("install PostgreSQL: apt-get %s: %w", args[0], err)
		}
	}
	return nil
}

// declineMainCluster keeps the package from creating and starting a cluster on
// port 5432, which nobody here asked for: postgresql-common reads dir before it
// does. restore takes the wish back, so that a later administrator gets what
// the distribution documents.
func declineMainCluster(dir string) (restore func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "orderpaid.conf")
	if err := os.WriteFile(file, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(file) }, nil
}
