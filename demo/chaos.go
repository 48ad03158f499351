package demo

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Every misfortune has its time, of which a freeze takes a part. It is never
// shorter than this: what was killed must be back before the next one goes, or
// nobody is left to work at all.
const (
	chaosTurn   = 3 * time.Second
	chaosFreeze = 2 * time.Second
)

// A misfortune is one thing that chaos does to the stack.
type misfortune struct {
	name string
	do   func(ctx context.Context) error

	// What a mail server has accepted at this moment may be sent once more:
	// whoever was to write the answer down is gone, or cannot.
	mails bool
}

// chaos lets every kind of process die and freeze, PostgreSQL and NATS
// included, one after the other for as long as d, and every one of them at
// least once. tell is told of each when it begins.
func (s *Stack) chaos(ctx context.Context, d time.Duration, tell func(misfortune)) error {
	all := s.misfortunes()
	turn := time.NewTicker(max(chaosTurn, d/time.Duration(len(all))))
	defer turn.Stop()
	for done, deadline := 0, time.Now().Add(d); done < len(all) || time.Now().Before(deadline); done++ {
		what := all[done%len(all)]
		tell(what)
		if err := what.do(ctx); err != nil {
			return fmt.Errorf("chaos: %s: %w", what.name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-turn.C:
		}
	}
	return nil
}

// misfortunes are all of them, the same kind of process never twice in a row.
// The world outside is spared: a payment provider that forgets what it was
// about to announce is not what the shop can mend.
func (s *Stack) misfortunes() []misfortune {
	names := append([]string{"nats-server"}, everyService...)
	for n := range s.cfg.Relays {
		names = append(names, Relay(n+1))
	}
	var all []misfortune
	for _, name := range names {
		all = append(all, misfortune{"kill -9 " + name, func(context.Context) error { return s.Kill(name) }, name == "notify"})
	}
	all = append(all, misfortune{"kill -9 PostgreSQL", s.killPostgres, true})
	for _, name := range names {
		all = append(all, misfortune{"freeze " + name, func(ctx context.Context) error { return s.freezeProcess(ctx, name) }, name == "notify"})
	}
	return append(all, misfortune{"freeze PostgreSQL", s.freezePostgres, true})
}

// killPostgres ends the server as the kernel would that is out of memory. It
// forgets what is in its shared memory, and recovers from its log.
func (s *Stack) killPostgres(context.Context) error {
	s.postgres.Kill()
	return nil
}

// freezeProcess stops a child where it stands, with all that it has started,
// and lets it go on after a while.
func (s *Stack) freezeProcess(ctx context.Context, name string) error {
	pid := s.PID(name)
	if pid == 0 {
		return nil // it is being started again: that is misfortune enough
	}
	return frozen(ctx, -pid)
}

// freezePostgres stops the server first, so that it starts no further session,
// and then its sessions.
func (s *Stack) freezePostgres(ctx context.Context) error {
	pids := []int{s.postgres.PID()}
	parents, err := linuxParents() // none elsewhere: there only the server itself is frozen
	if err != nil {
		return err
	}
	for pid, parent := range parents {
		if parent == s.postgres.PID() {
			pids = append(pids, pid)
		}
	}
	return frozen(ctx, pids...)
}

// frozen stops processes, or groups of them, for chaosFreeze. One that has
// ended is no error.
func frozen(ctx context.Context, pids ...int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // also when ctx is done: what is frozen cannot stop
	}
	select {
	case <-ctx.Done():
	case <-time.After(chaosFreeze):
	}
	return nil
}
