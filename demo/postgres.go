package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"orderpaid/platform/pgserver"
)

// StartPostgres starts a private server. Where the machine has no PostgreSQL
// it gets one first: from the distribution's packages, which takes root on
// Debian or Ubuntu, or else as packed binaries (tools/fetchpg). If neither can
// be done, the error is one sentence that says what to install.
func StartPostgres(ctx context.Context, root string, cfg pgserver.Config) (*pgserver.Server, error) {
	if err := ensureBinaries(ctx, root); err != nil {
		return nil, err
	}
	return pgserver.Start(ctx, cfg)
}

// keepPostgres starts the server again when it ends though nobody has stopped
// it, as the supervisor does with its children, until letGo is called. It is
// not one of those: its user, its shared memory and its shutdown are special.
func (s *Stack) keepPostgres(server *pgserver.Server) (letGo func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for deaths := 0; ; {
			born := time.Now()
			select {
			case <-ctx.Done():
				return
			case <-server.Done():
			}
			if time.Since(born) > youngChild {
				deaths = 0
			}
			if deaths++; deaths >= maxQuickDeaths {
				s.fail(fmt.Errorf("PostgreSQL died %d times in a row", deaths))
				return
			}
			s.cfg.Notice("PostgreSQL died, starting it again")
			if err := server.Restart(ctx); err != nil {
				if ctx.Err() == nil {
					s.fail(err)
				}
				return
			}
			s.cfg.Notice(fmt.Sprintf("PostgreSQL is process %d again", server.PID()))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func ensureBinaries(ctx context.Context, root string) error {
	_, missing := pgserver.Find()
	if !errors.Is(missing, pgserver.ErrNotFound) {
		return missing
	}
	var log bytes.Buffer
	err := pgserver.Install(ctx, &log)
	if err == nil {
		return nil
	}
	if !errors.Is(err, pgserver.ErrNotFound) {
		return fmt.Errorf("%w\n%s", err, strings.TrimSpace(log.String()))
	}
	return fetchBinaries(ctx, root)
}

// fetchBinaries runs tools/fetchpg, which is a module of its own because the
// product does not need what it imports. The binaries stay in .orderpaid, where
// the next start finds them.
func fetchBinaries(ctx context.Context, root string) error {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "run", ".", filepath.Join(root, ".orderpaid", "postgresql"))
	cmd.Dir = filepath.Join(root, "tools", "fetchpg")
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n(fetching it did not work either: %s)", pgserver.ErrNotFound, strings.TrimSpace(log.String()))
	}
	return os.Setenv(pgserver.EnvBin, strings.TrimSpace(string(out)))
}
