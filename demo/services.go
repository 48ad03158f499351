package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// httpPorts are where the services and the sim listen, if that is free; the
// second listener of a service, for operators, is a thousand above.
var httpPorts = map[string]int{"order": 8080, "points": 8081, "notify": 8082, "search": 8083, "console": 8084, "sim": 8089}

const smtpPort = 2525

// relayOpsPort is where the first relay's listener for operators is, if that
// is free; the others' are above.
const relayOpsPort = 9085

// These bound each pool of a service. Every session is a process of 3 MB or
// more, and all of this has to fit beside what people have open anyway. A heavy
// load needs more: commits that wait for the disk together are one sync.
const (
	databaseConns     = "2"
	busyDatabaseConns = "12"
)

// producers are the services that state events: those whose outboxes are
// relayed.
var producers = []string{"order", "points", "notify"}

// startServices starts the sim, the services and the relays, all at once: each
// waits for what it needs by itself.
func (s *Stack) startServices(ctx context.Context) error {
	specs, err := s.serviceSpecs(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, spec := range specs {
		g.Go(func() error { return s.Start(ctx, spec) })
	}
	return g.Wait()
}

func (s *Stack) serviceSpecs(ctx context.Context) ([]Spec, error) {
	var err error
	if s.WebhookSecret, err = keptSecret(filepath.Join(s.cfg.Dir, "webhook-secret")); err != nil {
		return nil, err
	}
	smtp, err := s.address("the mail server", smtpPort)
	if err != nil {
		return nil, err
	}
	if err := s.pickAddresses(); err != nil {
		return nil, err
	}
	if s.Tokens, err = keptTokens(filepath.Join(s.cfg.Dir, "ops-tokens")); err != nil {
		return nil, err
	}
	if s.control, err = s.newControl(ctx); err != nil {
		return nil, err
	}
	own := map[string][]string{
		"order":   {"WEBHOOK_SECRETS=" + s.WebhookSecret},
		"notify":  {"SMTP_ADDR=" + smtp, "CONTACT_DOMAIN=customers.example"},
		"console": s.consoleEnv(),
	}
	var specs []Spec
	for _, service := range everyService {
		spec, err := s.serviceSpec(service, service, own[service])
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	sim, err := s.simSpec(smtp)
	if err != nil {
		return nil, err
	}
	specs = append(specs, sim)
	for n := range s.cfg.Relays {
		spec, err := s.relaySpec(Relay(n + 1))
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// serviceSpec describes one process of a service.
func (s *Stack) serviceSpec(service, process string, env []string) (Spec, error) {
	http, ops := s.addr[service], s.opsAddr[service]
	if process != service { // another replica
		var err error
		if http, err = s.address(process, 0); err != nil {
			return Spec{}, err
		}
		if ops, err = s.address(process, 0); err != nil {
			return Spec{}, err
		}
	}
	conns := databaseConns
	if s.cfg.Busy {
		conns = busyDatabaseConns
	}
	return s.spec(process, service, ops, append(append(env, s.opsEnv(service)...),
		"HTTP_ADDR="+http, "DATABASE_CONNS="+conns, "DATABASE_URL="+s.DSN(Database(service), Database(service)), "NATS_URL="+s.NATSURL))
}

func (s *Stack) relaySpec(process string) (Spec, error) {
	var databases []string
	for _, service := range producers {
		databases = append(databases, service+"="+s.DSN(Database(service), relayRole))
	}
	ops, err := s.address("the operators' side of "+process, relayOpsPort+len(s.RelayURL))
	if err != nil {
		return Spec{}, err
	}
	s.RelayURL[process] = "http://" + ops
	return s.spec(process, "relay", ops, []string{"RELAY_DATABASES=" + strings.Join(databases, " "), "NATS_URL=" + s.NATSURL})
}

// spec describes a process of ours that has a listener for operators.
func (s *Stack) spec(process, program, ops string, env []string) (Spec, error) {
	return Spec{
		Name: process, Path: filepath.Join(s.cfg.Bin, program),
		Env:   append(env, "OPS_ADDR="+ops, "EXIT_WITH_PARENT=1"),
		Ready: httpReady("http://" + ops + "/readyz"),
	}, nil
}

// simSpec describes the world outside. It has one listener.
func (s *Stack) simSpec(smtp string) (Spec, error) {
	http := s.addr["sim"]
	return Spec{
		Name: "sim", Path: filepath.Join(s.cfg.Bin, "sim"),
		Env: []string{"SIM_HTTP_ADDR=" + http, "SIM_SMTP_ADDR=" + smtp, "SIM_MAIL_FILE=" + filepath.Join(s.cfg.Dir, "mails.jsonl"),
			"SIM_WEBHOOK_URL=" + s.URL["order"] + "/v1/webhooks/payments", "SIM_WEBHOOK_SECRET=" + s.WebhookSecret, "EXIT_WITH_PARENT=1"},
		Ready: httpReady("http://" + http + "/readyz"),
	}, nil
}

// keptSecret returns the webhook secret in a file, and makes it first if there
// is none: a later start, and callbacks from the one before, use the same.
func keptSecret(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("webhook secret: %w", err)
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("webhook secret: %w", err)
	}
	return secret, nil
}
