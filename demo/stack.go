package demo

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"orderpaid/platform/freeport"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/pgserver"
	"orderpaid/shopctl"
)

// StackConfig says what to start and where.
type StackConfig struct {
	Root string // the checkout. Required.
	Bin  string // where the programs are built. Required.
	Dir  string // data and logs, which a later start continues with. Required.

	Relays   int      // how many relay processes. Defaults to 2.
	AnyPorts bool     // take any free ports, and not the ones that the README names where they are free
	Busy     bool     // sessions and memory for a heavy load, and not for a machine where other programs are open
	Unsafe   bool     // PostgreSQL without fsync: for tests that can start again
	Env      []string // added to the environment of every child

	Step   func(what string, took time.Duration) // called after each step. Defaults to nothing.
	Notice func(string)                          // told when a port is taken, a child died and when it is there again. Defaults to nothing.
}

// A Stack is the whole shop with everything it needs, in child processes of
// this one: PostgreSQL, nats-server, the world outside, the services and the
// relays.
type Stack struct {
	*Supervisor

	NATSURL       string
	WebhookSecret string            // what the payment provider signs with
	URL           map[string]string // base URLs of the services and of the sim, by name
	OpsURL        map[string]string // base URLs of the services' listeners for operators, by name
	RelayURL      map[string]string // … of the relays, which only tell of their health and metrics
	Tokens        Tokens            // who may use those

	addr, opsAddr map[string]string // the same as host:port
	control       *control

	cfg      StackConfig
	postgres *pgserver.Server
	letGo    func() // ends keepPostgres
	ports    freeport.Picker
}

// Relay returns the name of the nth relay process, from 1.
func Relay(n int) string { return fmt.Sprintf("relay-%d", n) }

// Up starts everything, in order, and returns when all is ready. The caller
// must call Down, also when Up fails: what had been started then still runs.
func Up(ctx context.Context, cfg StackConfig) (*Stack, error) {
	if cfg.Relays == 0 {
		cfg.Relays = 2
	}
	if cfg.Step == nil {
		cfg.Step = func(string, time.Duration) {}
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string) {}
	}
	s := &Stack{cfg: cfg, URL: map[string]string{}, OpsURL: map[string]string{}, RelayURL: map[string]string{}, addr: map[string]string{}, opsAddr: map[string]string{}}
	var err error
	if s.Supervisor, err = NewSupervisor(filepath.Join(cfg.Dir, "log"), cfg.Notice); err != nil {
		return s, err
	}
	s.Env = cfg.Env
	if !cfg.Busy {
		s.Env = append([]string{"GOGC=50"}, cfg.Env...) // less memory for some more work: people have other programs open
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"programs", s.build},
		{"PostgreSQL", s.startPostgres},
		{"databases and roles", s.bootstrap},
		{"migrations", s.migrate},
		{"nats-server", s.startNATS},
		{"stream and durables", s.ensureTopology},
		{"services and relays", s.startServices},
	} {
		started := time.Now()
		if err := step.do(ctx); err != nil {
			return s, err
		}
		cfg.Step(step.what, time.Since(started))
	}
	return s, s.writeShopctl()
}

// Down stops everything, the last started first. The data stays.
func (s *Stack) Down() error {
	if s.control != nil {
		s.control.close() // heals first: what is frozen cannot stop
	}
	if s.Supervisor != nil {
		s.StopAll()
	}
	if s.postgres == nil {
		return nil
	}
	s.letGo()
	return s.postgres.Stop()
}

// DSN returns the address of a database for a role.
func (s *Stack) DSN(database, role string) string {
	u, err := url.Parse(s.postgres.DSN(database))
	if err != nil {
		panic(err) // pgserver made it
	}
	u.User = url.User(role)
	return u.String()
}

// DataDir returns where PostgreSQL's data really lies.
func (s *Stack) DataDir() string { return s.postgres.Dir }

// memory measures everything that the stack runs, and this process.
func (s *Stack) memory() (footprint, error) { return measureMemory(os.Getpid(), s.postgres.PID()) }

func (s *Stack) build(ctx context.Context) error { return Build(ctx, s.cfg.Root, s.cfg.Bin) }

func (s *Stack) startPostgres(ctx context.Context) error {
	cfg := pgserver.Config{Dir: filepath.Join(s.cfg.Dir, "postgres"), Unsafe: s.cfg.Unsafe, SharedBuffersMB: 16, MaxConnections: 100}
	if s.cfg.Busy {
		cfg.SharedBuffersMB, cfg.MaxConnections = 64, 200
	}
	server, err := StartPostgres(ctx, s.cfg.Root, cfg)
	if err != nil {
		return err
	}
	s.postgres, s.letGo = server, s.keepPostgres(server)
	return nil
}

func (s *Stack) bootstrap(ctx context.Context) error {
	return bootstrap(ctx, s.postgres.DSN("postgres"))
}
func (s *Stack) migrate(ctx context.Context) error { return migrate(ctx, s.DSN) }

func (s *Stack) startNATS(ctx context.Context) error {
	addr, err := s.address("nats-server", 4222)
	if err != nil {
		return err
	}
	monitor, err := s.address("the monitoring of nats-server", 8222)
	if err != nil {
		return err
	}
	spec, err := natsSpec(s.cfg.Bin, s.cfg.Dir, addr, monitor)
	if err != nil {
		return err
	}
	s.NATSURL = "nats://" + addr
	return s.Start(ctx, spec)
}

// ensureTopology also brings the durables of an older demo's folder up to date.
func (s *Stack) ensureTopology(ctx context.Context) error {
	topology := shopctl.Topology()
	topology.Update = true
	return natsbroker.EnsureTopology(ctx, s.NATSURL, topology)
}

// address picks a local address, the preferred one if that is wanted and free,
// and says so if it is not free: the README names it. Between the look and the
// use somebody else may take the port; the child then fails to start and says so.
func (s *Stack) address(what string, preferred int) (string, error) {
	if s.cfg.AnyPorts {
		preferred = 0
	}
	addr, err := s.ports.Pick(preferred)
	if err == nil && preferred != 0 && !strings.HasSuffix(addr, fmt.Sprintf(":%d", preferred)) {
		s.cfg.Notice(fmt.Sprintf("port %d is taken, so %s is at %s", preferred, what, addr))
	}
	return addr, err
}
