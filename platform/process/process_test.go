package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"orderpaid/platform/process"
)

// Main owns its process, so each test starts this binary again: with roleEnv
// set it is the program under test.
const roleEnv = "PROCESS_TEST_ROLE"

// config is what a service would have.
type config struct {
	process.Service `kong:"set='http_addr=127.0.0.1:8081',set='ops_addr=127.0.0.1:9081'"`
	ContactDomain   string                    `help:"Domain of made-up mail addresses." default:"demo.example"`
	SigningKey      process.Secret            `help:"Key of the payment provider."`
	Outboxes        map[string]process.Secret `help:"Databases to read." mapsep:" "`
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	var cfg config
	process.Main("points", "Awards points.", &cfg, func(ctx context.Context) error {
		fmt.Printf("running %s %s %s %s %q\n", cfg.HTTPAddr, string(cfg.DatabaseURL), cfg.ContactDomain, string(cfg.SigningKey), string(cfg.Outboxes["a"]))
		switch role {
		case "fails":
			return errors.New("stream EVENTS does not exist; run \"shopctl topology\"")
		case "ends":
			return nil
		case "gives up":
			return fmt.Errorf("read: %w", context.Canceled)
		case "hangs":
			<-ctx.Done()
			fmt.Println("stopping")
			select {}
		}
		<-ctx.Done()
		fmt.Println("stopping")
		return ctx.Err()
	})
}

const database = "postgres://shop_points:geheim@127.0.0.1:5432/shop_points"

// A program under test.
type program struct {
	*exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Scanner // its stdout
	stderr strings.Builder
}

func start(t *testing.T, role string, env []string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	p.Env = append([]string{roleEnv + "=" + role}, env...)
	p.Stderr = &p.stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.lines = stdin, bufio.NewScanner(stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// line returns the next line of the program's stdout.
func (p *program) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

// exitCode waits for the program's end; -1 means that a signal ended it.
func (p *program) exitCode(t *testing.T) int {
	t.Helper()
	for p.lines.Scan() {
	}
	var exit *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// lastLine returns what the program said last, which is why it ended.
func (p *program) lastLine() string {
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	return lines[len(lines)-1]
}

func TestFlagsWinOverEnvironmentAndEnvironmentOverDefaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env, args []string
		want      string
	}{
		"defaults":    {[]string{"DATABASE_URL=" + database}, nil, `running 127.0.0.1:8081 ` + database + ` demo.example  ""`},
		"environment": {[]string{"DATABASE_URL=" + database, "HTTP_ADDR=:1", "CONTACT_DOMAIN=e.example", "SIGNING_KEY=k", "OUTBOXES=a=1 b=2"}, nil, `running :1 ` + database + ` e.example k "1"`},
		"flags":       {[]string{"DATABASE_URL=postgres://other", "CONTACT_DOMAIN=e.example"}, []string{"--database-url=" + database, "--contact-domain=f.example"}, `running 127.0.0.1:8081 ` + database + ` f.example  ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "ends", tc.env, tc.args...)
			if got := p.line(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if code := p.exitCode(t); code != 0 {
				t.Errorf("exit code = %d, want 0; stderr %s", code, p.stderr.String())
			}
		})
	}
}

func TestConfigurationIsLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	p := start(t, "ends", []string{"DATABASE_URL=" + database, "SIGNING_KEY=geheim", "NATS_URL=nats://u:geheim@127.0.0.1"})
	p.exitCode(t)
	log := p.stderr.String()
	for _, want := range []string{`"msg":"starting"`, `"database-url":"***"`, `"migrate-url":""`, `"signing-key":"***"`, `"nats-url":"***"`, `"contact-domain":"demo.example"`, `"msg":"stopped"`} {
		if !strings.Contains(log, want) {
			t.Errorf("log has no %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, "geheim") {
		t.Errorf("log has a secret:\n%s", log)
	}
}

func TestSecretMayComeFromAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(database+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "ends", []string{"DATABASE_URL_FILE=" + file})
	if got, want := p.line(), `running 127.0.0.1:8081 `+database+` demo.example  ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if code := p.exitCode(t); code != 0 || strings.Contains(p.stderr.String(), "geheim") {
		t.Errorf("exit code = %d, want 0, and no secret in the log: %s", code, p.stderr.String())
	}
	for name, broken := range map[string]string{"missing": file + "-2", "empty": os.DevNull} {
		p := start(t, "ends", []string{"DATABASE_URL_FILE=" + broken})
		if code := p.exitCode(t); code != 2 || !strings.Contains(p.stderr.String(), "DATABASE_URL_FILE") {
			t.Errorf("%s: exit code %d, stderr %q; want 2 and the variable", name, code, p.stderr.String())
		}
	}
}

func TestBadValueEndsTheStartWithItsFlag(t *testing.T) {
	t.Parallel()
	for flag, tc := range map[string]struct{ env, args []string }{
		"--database-url":      {nil, nil},
		"--database-conns":    {[]string{"DATABASE_URL=" + database, "DATABASE_CONNS=many"}, nil},
		"--database-conns: 1": {[]string{"DATABASE_URL=" + database}, []string{"--database-conns=1"}},
		"--http-addr":         {[]string{"DATABASE_URL=" + database, "HTTP_ADDR=8080"}, nil},
		"--ops-addr":          {[]string{"DATABASE_URL=" + database}, []string{"--ops-addr=localhost"}},
		"--migrate-url":       {[]string{"DATABASE_URL=" + database, "MIGRATE_URL=postgres://u:geheim@h:port/d"}, nil},
		"--trace-parent-mode": {[]string{"DATABASE_URL=" + database, "TRACE_PARENT_MODE=both"}, nil},
		"--log-level":         {[]string{"DATABASE_URL=" + database, "LOG_LEVEL=loud"}, nil},
		"--outboxes":          {[]string{"DATABASE_URL=" + database, "OUTBOXES=" + database}, nil},
		"unexpected argument": {nil, []string{database}},
		"--colour":            {[]string{"DATABASE_URL=" + database}, []string{"--colour=red"}},
	} {
		p := start(t, "ends", tc.env, tc.args...)
		if code := p.exitCode(t); code != 2 {
			t.Errorf("%s: exit code = %d, want 2", flag, code)
		}
		if got := p.stderr.String(); !strings.Contains(got, flag) || strings.Count(got, "\n") != 1 || strings.Contains(got, "geheim") {
			t.Errorf("%s: stderr = %q, want one line that names it", flag, got)
		}
	}
}

func TestHelpShowsEachFlagWithItsVariable(t *testing.T) {
	t.Parallel()
	out, err := command(t, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	for _, want := range []string{"Awards points.", "--http-addr", "($HTTP_ADDR)", "127.0.0.1:8081", "($DATABASE_URL)", "($CONTACT_DOMAIN)", "($LOG_LEVEL)", "--version"} {
		if !strings.Contains(text, want) {
			t.Errorf("help has no %s:\n%s", want, out)
		}
	}
	if strings.Contains(text, "exit-with-parent") {
		t.Error("help shows a flag that is for supervisors only")
	}
}

func TestVersionIsPrintedWithoutAnyConfiguration(t *testing.T) {
	t.Parallel()
	out, err := command(t, "--version").Output()
	if err != nil || strings.TrimSpace(string(out)) != process.Version() {
		t.Errorf("--version = %q, %v; want %s", out, err, process.Version())
	}
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{roleEnv + "=ends"}
	return cmd
}

func TestErrorOfRunIsTheLastLineAndTheExitCodeOne(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]string{
		"fails":    `points: stream EVENTS does not exist; run "shopctl topology"`,
		"gives up": "points: read: context canceled", // nobody asked it to stop
	} {
		p := start(t, role, []string{"DATABASE_URL=" + database})
		if code := p.exitCode(t); code != 1 || p.lastLine() != want {
			t.Errorf("%s: exit code %d and %q, want 1 and %q", role, code, p.lastLine(), want)
		}
	}
}

func TestSignalStopsCleanly(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t, "waits", []string{"DATABASE_URL=" + database})
		p.line() // running
		signal(t, p, sig)
		if got := p.line(); got != "stopping" {
			t.Errorf("%v: got %q, want it to stop by itself", sig, got)
		}
		if code := p.exitCode(t); code != 0 {
			t.Errorf("%v: exit code = %d, want 0; stderr %s", sig, code, p.stderr.String())
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, "hangs", []string{"DATABASE_URL=" + database, "STOP_WITHIN=1h"})
	p.line() // running
	signal(t, p, syscall.SIGTERM)
	p.line() // stopping
	// The first signal gives up its handler in the background; a second one
	// that comes before that is lost, so insist.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				_ = p.Process.Signal(syscall.SIGTERM)
			}
		}
	}()
	if code := p.exitCode(t); code != -1 {
		t.Errorf("exit code = %d, want the signal itself", code)
	}
}

func TestStopThatTakesTooLongEndsHard(t *testing.T) {
	t.Parallel()
	p := start(t, "hangs", []string{"DATABASE_URL=" + database, "STOP_WITHIN=50ms"})
	p.line() // running
	signal(t, p, syscall.SIGTERM)
	if code := p.exitCode(t); code != 1 || !strings.Contains(p.lastLine(), "did not stop within 50ms") {
		t.Errorf("exit code %d and %q, want 1 and the reason", code, p.lastLine())
	}
}

func TestProgramStopsWhenItsParentIsGone(t *testing.T) {
	t.Parallel()
	p := start(t, "waits", []string{"DATABASE_URL=" + database}, "--exit-with-parent")
	p.line() // running
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if got := p.line(); got != "stopping" {
		t.Errorf("got %q, want it to stop by itself", got)
	}
	if code := p.exitCode(t); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
}

func signal(t *testing.T, p *program, sig os.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
