// Command fetchpg puts PostgreSQL's server binaries into a folder, for machines
// that have none and whose user may not install any. It downloads the packed
// binaries that embedded-postgres uses, and prints the folder with initdb and
// postgres.
//
// It is a module of its own, because the product itself needs neither the
// download nor its library. Run it from its folder: go run . --help
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

const usage = `usage: fetchpg [--repository URL] [--version X.Y.Z] FOLDER

Fetches PostgreSQL's server binaries into FOLDER and prints the folder that
holds initdb and postgres, which is what ORDERPAID_PG_BIN wants. If FOLDER has
them already, nothing is fetched.

`

// envRepository names the environment variable that --repository defaults to.
const envRepository = "ORDERPAID_PG_REPOSITORY"

func main() {
	binDir, err := run(context.Background(), os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetchpg:", err)
		os.Exit(1)
	}
	fmt.Println(binDir)
}

func run(ctx context.Context, args []string, log io.Writer) (binDir string, err error) {
	flags := flag.NewFlagSet("fetchpg", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() {
		_, _ = fmt.Fprint(log, usage)
		flags.PrintDefaults()
	}
	repository := flags.String("repository", os.Getenv(envRepository),
		"address of a Maven repository with embedded-postgres-binaries (env "+envRepository+"; default: the public one)")
	version := flags.String("version", string(embedded.V17), "version to fetch")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	if flags.NArg() != 1 {
		return "", errors.New("want one folder; see --help")
	}
	dir, err := filepath.Abs(flags.Arg(0))
	if err != nil {
		return "", err
	}
	binDir = filepath.Join(dir, "bin")
	if answers(ctx, binDir) == nil {
		return binDir, nil
	}
	if _, err := fmt.Fprintf(log, "fetching PostgreSQL %s into %s\n", *version, dir); err != nil {
		return "", err
	}
	if err := fetch(ctx, *repository, embedded.PostgresVersion(*version), dir); err != nil {
		return "", fmt.Errorf("fetch PostgreSQL %s: %w", *version, err)
	}
	return binDir, nil
}

// fetch downloads and unpacks into a folder beside dir, and renames it at the
// end: an interrupted run leaves nothing that looks complete.
func fetch(ctx context.Context, repository string, version embedded.PostgresVersion, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".fetchpg-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	unpacked := filepath.Join(tmp, "postgresql")
	startErr := startOnce(ctx, repository, version, tmp, unpacked)
	if err := answers(ctx, filepath.Join(unpacked, "bin")); err != nil {
		return cmp.Or(startErr, err)
	}
	if err := os.RemoveAll(dir); err != nil { // a folder whose binaries do not answer
		return err
	}
	return os.Rename(unpacked, dir)
}

// startOnce lets embedded-postgres fetch the binaries. It can do that only on
// the way to starting a server, which is stopped again at once. As root it
// fetches and then fails, because PostgreSQL refuses to run as root; so the
// error counts only if the binaries are not there afterwards.
func startOnce(ctx context.Context, repository string, version embedded.PostgresVersion, tmp, unpacked string) error {
	http.DefaultClient.Timeout = 10 * time.Minute // the library has no deadline of its own
	// The library leaves its log files in the folder for temporary files.
	if err := os.Setenv("TMPDIR", tmp); err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	config := embedded.DefaultConfig().
		Version(version).
		Port(port).
		CachePath(filepath.Join(tmp, "cache")).
		RuntimePath(filepath.Join(tmp, "runtime")).
		BinariesPath(unpacked).
		Logger(io.Discard)
	if repository != "" {
		config = config.BinaryRepositoryURL(strings.TrimRight(repository, "/"))
	}
	db := embedded.NewDatabase(config)
	if err := db.Start(); err != nil {
		return err
	}
	return db.Stop()
}

func freePort(ctx context.Context) (uint32, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return uint32(listener.Addr().(*net.TCPAddr).Port), nil
}

// answers reports whether both programs in the folder run on this machine.
func answers(ctx context.Context, binDir string) error {
	for _, name := range []string{"initdb", "postgres"} {
		if err := exec.CommandContext(ctx, filepath.Join(binDir, name), "--version").Run(); err != nil {
			return fmt.Errorf("run %s: %w", name, err)
		}
	}
	return nil
}
