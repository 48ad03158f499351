package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// StartStandby copies a running server into the empty folder cfg.Dir and
// starts the copy as a standby, which follows s and answers queries that only
// read. From then on a commit on s returns when the standby has it on its disk
// as well (synchronous_standby_names), so that none is lost if s is. The caller
// must call [Server.Stop] on both.
func (s *Server) StartStandby(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start a standby of PostgreSQL: no folder given")
	}
	standby := &Server{cfg: cfg, binDir: s.binDir, user: s.user}
	if err := standby.follow(ctx, s); err != nil {
		standby.unlock()
		return nil, fmt.Errorf("start a standby of PostgreSQL in %s: %w", cfg.Dir, err)
	}
	// Not before: until somebody follows, a commit would wait for ever.
	err := s.exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make commits wait for the standby: %w", err), standby.Stop())
	}
	return standby, nil
}

func (s *Server) follow(ctx context.Context, primary *Server) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	if s.Dir, err = prepareDir(ctx, s.cfg.Dir, s.binDir, s.user); err != nil {
		return err
	}
	if s.socket, err = socketDir(s.Dir, s.user); err != nil {
		return err
	}
	if s.lock, err = lockDir(s.Dir); err != nil {
		return err
	}
	if err := s.baseBackup(ctx, primary); err != nil {
		return err
	}
	return s.launch(ctx)
}

// baseBackup copies the primary's data, and writes into the copy whom it is to
// follow.
func (s *Server) baseBackup(ctx context.Context, primary *Server) error {
	// Beside the real server: a folder of links may have links to the two
	// programs that are looked for, and no others.
	server, err := filepath.EvalSymlinks(filepath.Join(s.binDir, "postgres"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(server), "pg_basebackup"),
		"--pgdata", s.data(), "--host", primary.socket, "--port", port, "--username", Superuser,
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast")
	cmd.Dir = s.Dir
	cmd.Env = s.user.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Chmod(s.data(), 0o700)
}

// Promote makes a standby a server of its own, and returns when it takes
// writes. Whatever it followed must not run any more: nobody else sees to that.
func (s *Server) Promote(ctx context.Context) error {
	if err := s.exec(ctx, "SELECT pg_promote(true, 60)"); err != nil {
		return fmt.Errorf("promote PostgreSQL in %s: %w", s.Dir, err)
	}
	return nil
}

func (s *Server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the statements have their answers
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// EitherDSN returns the address of a database that lies on two servers, of
// which one takes writes: a client finds out which, each time it connects.
func EitherDSN(a, b *Server, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s,%s&port=%s,%s&sslmode=disable&target_session_attrs=read-write",
		Superuser, database, a.socket, b.socket, port, port)
}
