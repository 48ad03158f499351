package pgserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config configures a [Server].
type Config struct {
	// Dir is the server's folder: data, log, lock and socket. It is created
	// if it does not exist; one that exists must be empty or from an earlier
	// start. Required.
	Dir string

	// Unsafe turns fsync off: much faster, and a crash of the machine loses
	// the database. For tests, which can start again. Defaults to off, that
	// is, to a server whose commits are on the disk.
	Unsafe bool

	// MaxConnections is the server's max_connections. Defaults to 200.
	MaxConnections int

	// SharedBuffersMB is the server's shared_buffers in MiB. It is small
	// because the whole demo has to fit into 400 MB. Defaults to 64.
	SharedBuffersMB int

	// Language is that of the server's messages, for example "de", where
	// PostgreSQL was installed with its translations. For tests that show that
	// nobody reads these texts. Defaults to English.
	Language string

	// Env is added to the environment of the server's processes, such as a
	// library that is loaded ahead of others. Defaults to nothing.
	Env []string

	// Settings are further parameters of postgresql.conf. They win over those
	// that the fields above stand for.
	Settings map[string]string
}

// Superuser is the role that [Server.DSN] connects as.
const Superuser = "postgres"

// Time limits. A recovery after a crash replays the log and may be long; the
// context given to Start bounds it as well.
const (
	startTimeout = 2 * time.Minute
	fastTimeout  = 30 * time.Second // a checkpoint on a slow disk
	quitTimeout  = 10 * time.Second
	retireTime   = 20 * time.Second // for what an earlier server left running
	pollEvery    = 20 * time.Millisecond
)

// A Server is a running PostgreSQL. Its methods are for one goroutine, except
// DSN, PID, Done and Kill.
type Server struct {
	// Dir is where the data really lies: Config.Dir, or, if the user that the
	// server runs as cannot enter that, a folder under /var/tmp.
	Dir string

	cfg    Config
	binDir string
	user   user
	socket string // folder of the unix socket
	lock   *os.File
	proc   atomic.Pointer[process]
}

// Start starts a server and returns when it answers. The caller must call
// [Server.Stop].
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start PostgreSQL: no folder given")
	}
	s := &Server{cfg: cfg}
	if err := s.start(ctx); err != nil {
		s.unlock()
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", cmp.Or(s.Dir, cfg.Dir), err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	found, err := findAll()
	if err != nil {
		return err
	}
	if s.user, err = serverUser(); err != nil {
		return err
	}
	if s.Dir, err = prepareDir(ctx, s.cfg.Dir, found[0].dir, s.user); err != nil {
		return err
	}
	if s.binDir, err = chooseBinaries(found, s.data()); err != nil {
		return err
	}
	if s.socket, err = socketDir(s.Dir, s.user); err != nil {
		return err
	}
	if s.lock, err = lockDir(s.Dir); err != nil {
		return err
	}
	if err := s.initdb(ctx); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Restart starts the server again after [Server.Kill] or [Server.Stop], with
// the same data under the same address.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	if s.lock == nil {
		if s.lock, err = lockDir(s.Dir); err != nil {
			return fmt.Errorf("restart PostgreSQL in %s: %w", s.Dir, err)
		}
	}
	if err := s.launch(ctx); err != nil {
		s.unlock()
		return fmt.Errorf("restart PostgreSQL in %s: %w", s.Dir, err)
	}
	return nil
}

// launch starts the process and waits until it answers.
//
// After an unclean end, processes of the old server may still be on their way
// out and hold its shared memory; the new one refuses to start until the last
// of them is gone. So an early exit is final only if the end before was clean,
// or if it repeats for long enough.
func (s *Server) launch(ctx context.Context) error {
	unclean, err := s.retireOld(ctx)
	if err != nil {
		return err
	}
	giveUp := time.Now().Add(retireTime)
	for {
		proc, err := s.spawn()
		if err != nil {
			return err
		}
		s.proc.Store(proc)
		err = s.waitReady(ctx, proc)
		if err == nil {
			return nil
		}
		if !unclean || proc.running() || time.Now().After(giveUp) {
			_ = proc.stop()
			return err
		}
		if err := sleep(ctx, 10*pollEvery); err != nil {
			return err
		}
	}
}

// spawn starts postgres with all parameters on its command line: the folder
// holds data, not configuration, so a changed Config takes effect at once.
func (s *Server) spawn() (*process, error) {
	settings := s.settings()
	args := []string{"-D", s.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own copy
	// No context ends it: the one of Start is for the start alone.
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.binDir, "postgres"), args...)
	cmd.Dir = s.Dir
	cmd.Env = append(append(s.user.environ(), "LANGUAGE="+s.cfg.Language), s.cfg.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.credential}
	return startProcess(cmd)
}

func (s *Server) settings() map[string]string {
	settings := map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": s.socket,
		"unix_socket_permissions": "0700",
		"max_connections":         strconv.Itoa(cmp.Or(s.cfg.MaxConnections, 200)),
		"shared_buffers":          strconv.Itoa(cmp.Or(s.cfg.SharedBuffersMB, 64)) + "MB",
		"jit":                     "off", // loads tens of megabytes of compiler into each session, for queries of milliseconds
		"log_timezone":            "UTC",
		"timezone":                "UTC",
		"log_line_prefix":         "%m [%p] %q%a@%d ",
		"log_error_verbosity":     "terse", // no DETAIL lines: they repeat the values of a row
	}
	if runtime.GOOS == "linux" {
		settings["recovery_init_sync_method"] = "syncfs" // after a crash one call, and not one for each of thousands of files
	}
	if s.cfg.Unsafe {
		// synchronous_commit stays on: without fsync it costs next to nothing,
		// and a commit survives the end of the server, if not of the machine.
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	if s.cfg.Language != "" {
		settings["lc_messages"] = "C.UTF-8" // under plain C, LANGUAGE is not looked at
	}
	maps.Copy(settings, s.cfg.Settings)
	return settings
}

// waitReady waits until the server accepts a session, which it does only when
// recovery is over.
func (s *Server) waitReady(ctx context.Context, proc *process) error {
	for {
		err := s.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("it ended at once: %w", s.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("it did not answer in time: %w", err)
		case <-time.After(pollEvery):
		}
	}
}

func (s *Server) probe(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// lastWords returns the end of the server's log as an error.
func (s *Server) lastWords() error {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return errors.New(string(bytes.Join(lines[max(0, len(lines)-5):], []byte(" | "))))
}

// DSN returns the address of a database for pgx and libpq, for the superuser.
// It stays the same over [Server.Restart] and over later starts in Dir.
func (s *Server) DSN(database string) string {
	q := url.Values{"host": {s.socket}, "port": {port}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(Superuser), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// Command returns the command line that starts this server by hand.
func (s *Server) Command() string {
	cmd := filepath.Join(s.binDir, "postgres") + " -D " + s.data() + " -c listen_addresses= -k " + s.socket
	if s.user.credential != nil {
		cmd = "runuser -u " + s.user.name + " -- " + cmd
	}
	return cmd
}

// PID returns the process id of the postmaster, the parent of all others.
func (s *Server) PID() int { return s.proc.Load().pid }

// Done is closed when the server has ended, whoever ended it. After a restart
// there is another one.
func (s *Server) Done() <-chan struct{} { return s.proc.Load().done }

// Stop ends all sessions, rolls back their transactions, writes a checkpoint,
// and returns when the server is gone. It may be called twice.
func (s *Server) Stop() error {
	defer s.unlock()
	if err := s.proc.Load().stop(); err != nil {
		return fmt.Errorf("stop PostgreSQL in %s: %w: %w", s.Dir, err, s.lastWords())
	}
	return nil
}

// Kill ends the server with SIGKILL, as a crash would: nothing is flushed that
// a commit has not flushed. Go on with [Server.Restart].
func (s *Server) Kill() { s.proc.Load().kill() }

func (s *Server) data() string    { return filepath.Join(s.Dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.Dir, "server.log") }

// port is only a part of the socket's file name here.
const port = "5432"

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
