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
)

// locales are tried in this order. Both of the first know all of Unicode, and
// C.UTF-8 also sorts the same everywhere; under plain C, lower() and trigrams
// ignore everything that is not ASCII.
var locales = []string{"C.UTF-8", "en_US.UTF-8", "C"}

// initdb creates the data folder unless there is one. It works in a folder
// beside it and renames that at the end: an interrupted initdb leaves no data
// folder, instead of one that looks complete.
func (s *Server) initdb(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); err == nil {
		return nil
	}
	unfinished := s.data() + ".new"
	var errs []error
	for _, locale := range locales {
		if err := os.RemoveAll(unfinished); err != nil {
			return err
		}
		err := s.runInitdb(ctx, unfinished, locale)
		if err == nil {
			return os.Rename(unfinished, s.data())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *Server) runInitdb(ctx context.Context, dir, locale string) error {
	args := []string{
		"--pgdata", dir, "--username", Superuser, "--encoding", "UTF8", "--locale", locale, "--lc-messages", "C",
		"--auth-local", "trust", "--auth-host", "reject", "--no-instructions",
	}
	if s.cfg.Unsafe {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.binDir, "initdb"), args...)
	cmd.Dir = s.Dir
	cmd.Env = s.user.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb with locale %s: %w: %s", locale, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// chooseBinaries returns the binaries for a data folder: those of the version
// that created it, or the best ones if it does not exist yet.
func chooseBinaries(found []installation, data string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return found[0].dir, nil
	}
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(raw))
	for _, in := range found {
		if fmt.Sprint(in.major) == version {
			return in.dir, nil
		}
	}
	return "", fmt.Errorf("its data was made by PostgreSQL %s, which is not installed any more: install it, or delete the folder to start afresh", version)
}
