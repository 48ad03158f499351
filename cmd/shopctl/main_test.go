package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"orderpaid/platform/porttest"
	"orderpaid/shopctl"
)

// away are the commands, and where whom they ask is named.
var away = map[string][]string{
	"SHOPCTL_SERVICES": {
		"why ord_1", "outbox show ord_1", "outbox republish 0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason=x",
		"outbox release 0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3 --reason=x",
		"dead-letters list", "dead-letters groups", "dead-letters list --service=points", "dead-letters groups --service=points",
		"dead-letters show points/1", "dead-letters show points/1 --payload --reason=x", "dead-letters retry points/1 --reason=x",
		"dead-letters retry --service=points --code=x --reason=x", "dead-letters fix points/1 --event=EVENT --reason=x",
		"dead-letters discard points/1 --reason=x", "exceptions list", "exceptions show order/1", "exceptions settle order/1 --reason=x",
		"doubts list", "doubts settle notify/1 --outcome=again --reason=x", "replay plan points-awarder --from=failures",
		"replay plan points-awarder --from=failures --sandbox --sandbox-admin-url=postgres://DATABASE/x",
		"replay create points-awarder --from=failures --reason=x", "replay start points/REPLAY --reason=x", "replay stop points/REPLAY --reason=x",
		"replay approve points/REPLAY --reason=x", "replay list", "replay show points/REPLAY", "reconcile", "reconcile --json",
	},
	"SHOPCTL_DATABASES": {"outbox summary", "outbox list", "migrate", "retention prepare", "retention detach"},
	"NATS_URL": {"topology plan --nats-url=nats://x:hidden@BROKER", "topology apply --nats-url=nats://x:hidden@BROKER",
		"reconcile --nats-url=nats://BROKER", "retention detach --nats-url=nats://BROKER"},
	"ORDER_URL": {"load --webhook-secret=whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0 --journal=JOURNAL"},
}

// Nothing runs: nobody can guess from a driver's words what to do about it.
func TestEveryCommandSaysWhoDoesNotAnswerWhereAndWhatToDoNext(t *testing.T) {
	event := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(event, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := map[string]string{}
	for set := range away {
		at[set] = porttest.Free(t)
	}
	services := "http://" + at["SHOPCTL_SERVICES"]
	for name, value := range map[string]string{ // as the demo's file has them, which outlives the demo
		"SHOPCTL_SERVICES": "order=" + services + " points=" + services + " notify=" + services, "SHOPCTL_TOKEN": "viewer-viewer-viewer-viewer",
		"SHOPCTL_DATABASES": "order=postgres://x:hidden@" + at["SHOPCTL_DATABASES"] + "/x?sslmode=disable", "ORDER_URL": "http://" + at["ORDER_URL"],
	} {
		t.Setenv(name, value)
	}
	given := strings.NewReplacer("EVENT", event, "REPLAY", "0197f3a2-c4de-7b1a-9c55-d2e8f0a1b2c3", "BROKER", at["NATS_URL"],
		"DATABASE", at["SHOPCTL_DATABASES"], "JOURNAL", filepath.Join(t.TempDir(), "journal"))
	untried := leaves(t)
	for set, lines := range away {
		for _, line := range lines {
			said, path := run(t, strings.Fields(given.Replace(line))...)
			delete(untried, path)
			for _, want := range []string{at[set], "start ", "scripts/demo", set} {
				if !strings.Contains(said, want) {
					t.Errorf("shopctl %s: got %q, want it to say %q", line, said, want)
				}
			}
			if strings.HasPrefix(said, "none") {
				t.Errorf("shopctl %s: got %q, want no list of nothing from nobody", line, said)
			}
			if strings.Count(said, set) > 1 || strings.Contains(said, "hidden") {
				t.Errorf("shopctl %s: got %q, want one hint and no password", line, said)
			}
		}
	}
	for path := range untried {
		t.Errorf("%s is not in the table", path)
	}
}

// newParser returns the parser of the command line as main has it.
func newParser(t *testing.T, out *bytes.Buffer) *kong.Kong {
	t.Helper()
	var cli commands
	parser, err := kong.New(&cli, kong.Name("shopctl"), kong.BindTo(t.Context(), (*context.Context)(nil)), kong.BindTo(out, (*io.Writer)(nil)))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// run returns everything that a command says, and which one it is.
func run(t *testing.T, args ...string) (said, path string) {
	t.Helper()
	var out bytes.Buffer
	parser := newParser(t, &out)
	parsed, err := parser.Parse(args)
	if err != nil {
		t.Fatalf("shopctl %s: %v", strings.Join(args, " "), err)
	}
	if err = shopctl.Run(parsed); err == nil {
		t.Errorf("shopctl %s: got no error", strings.Join(args, " "))
		return out.String(), parsed.Selected().FullPath()
	}
	return out.String() + err.Error(), parsed.Selected().FullPath()
}

func leaves(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, leaf := range newParser(t, new(bytes.Buffer)).Model.Leaves(true) {
		all[leaf.FullPath()] = true
	}
	return all
}
