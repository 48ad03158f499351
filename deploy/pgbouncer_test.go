package deploy_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orderpaid/demo"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
	"orderpaid/platform/service/servicetest"
	"orderpaid/shopctl"
)

// pooled starts a PgBouncer in transaction mode before a cluster, and returns
// how a role comes to a database through it.
func pooled(t *testing.T, c cluster, settings string) func(role, service string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: install pgbouncer from your distribution", err)
	}
	dir, err := os.MkdirTemp("/tmp", "orderpaid-bouncer-") // t.TempDir is closed to the user that it becomes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := url.Parse(c.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var users strings.Builder
	for _, role := range []string{"order", "points", "notify", "search", "relay"} {
		fmt.Fprintf(&users, "\"shop_%s\" \"secret\"\n", role)
	}
	host, port, _ := net.SplitHostPort(servicetest.FreeAddr(t))
	files := map[string]string{"users": users.String(), "pgbouncer.ini": fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s/users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 400
%s
`, cmp.Or(server.Query().Get("host"), server.Hostname()), cmp.Or(server.Query().Get("port"), server.Port(), "5432"), host, port, dir, settings)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{filepath.Join(dir, "pgbouncer.ini")}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "postgres"}, args...)
	}
	child(t, nil, program, args...)
	answers(t, func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return func(role, service string) string {
		return fmt.Sprintf("postgres://%s:secret@%s/shop_%s?sslmode=disable&default_query_exec_mode=cache_describe", role, net.JoinHostPort(host, port), service)
	}
}

// The documented setting: PgBouncer does not know the limits that a session
// begins with, and must be told to leave them to the role.
const leaveLimits = "ignore_startup_parameters = statement_timeout,lock_timeout,idle_in_transaction_session_timeout"

// child runs a program until the test ends; its output is shown if that fails.
func child(t *testing.T, env []string, program string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, args...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // ended by a signal
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(program), out.Bytes())
		}
	})
}

func answers(t *testing.T, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(2 * patience); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not come up")
		}
	}
}

// C47: every service and the relay behind a pooler of transactions: orders are
// placed and paid, and then everything is compared.
func TestTheShopWorksBehindPgBouncer(t *testing.T) {
	t.Parallel()
	c, broker, bin := newCluster(t), natstest.New(t), t.TempDir()
	through := pooled(t, c, leaveLimits)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, "orderpaid/cmd/order", "orderpaid/cmd/points",
		"orderpaid/cmd/notify", "orderpaid/cmd/search", "orderpaid/cmd/relay", "orderpaid/cmd/sim").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := natsbroker.EnsureTopology(t.Context(), broker.URL(), shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	secretFile := filepath.Join(bin, "webhook")
	if err := os.WriteFile(secretFile, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	sim, smtp, ops, api := servicetest.FreeAddr(t), servicetest.FreeAddr(t), []string{servicetest.FreeAddr(t)}, map[string]string{}
	child(t, []string{"SIM_HTTP_ADDR=" + sim, "SIM_SMTP_ADDR=" + smtp, "SIM_WEBHOOK_SECRET=" + secret}, filepath.Join(bin, "sim"))
	databases := map[string]process.Secret{}
	var outboxes []string
	for _, service := range []string{"order", "points", "notify", "search"} {
		api[service] = servicetest.FreeAddr(t)
		ops = append(ops, servicetest.FreeAddr(t))
		databases[service] = process.Secret(c.dsn("shop_audit", service))
		if service != "search" {
			outboxes = append(outboxes, service+"="+through("shop_relay", service))
		}
		child(t, []string{"HTTP_ADDR=" + api[service], "OPS_ADDR=" + ops[len(ops)-1], "DATABASE_CONNS=4", "NATS_URL=" + broker.URL(),
			"DATABASE_URL=" + through("shop_"+service, service), "WEBHOOK_SECRETS=" + secret, "SMTP_ADDR=" + smtp,
			"CONTACT_DOMAIN=customers.example"}, filepath.Join(bin, service))
	}
	child(t, []string{"OPS_ADDR=" + ops[0], "NATS_URL=" + broker.URL(), "RELAY_DATABASES=" + strings.Join(outboxes, " ")}, filepath.Join(bin, "relay"))
	for _, addr := range ops {
		answers(t, func() bool {
			resp, err := http.Get("http://" + addr + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	var table strings.Builder
	err := demo.CheckCommand{OrderURL: "http://" + api["order"], SimURL: "http://" + sim, NATSURL: process.Secret(broker.URL()), Databases: databases,
		WebhookSecret: secretFile, Journal: bin, Orders: 60, Only: "both"}.Run(t.Context(), &table)
	if err != nil {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// C47: a PgBouncer that was not told so must not make a service that works by halves.
func TestAServiceRefusesAPgBouncerThatDropsItsLimits(t *testing.T) {
	t.Parallel()
	through := pooled(t, newCluster(t), "")
	pool, err := postgres.Open(t.Context(), through("shop_points", "points"), postgres.Config{})
	if err == nil {
		pool.Close()
		t.Fatal("it opened")
	}
	if !strings.Contains(err.Error(), "unsupported startup parameter") || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v, want an error that names the parameter", err)
	}
}
