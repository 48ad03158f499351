package shopctl_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"orderpaid/shopctl"
)

// What a flag does not understand must not look like an empty list, and not
// choose more than was meant. Nobody is asked: the flags come first.
func TestAFlagThatDoesNotUnderstandItsValueSaysWhatItTakes(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"dead-letters list --state=foo":                           `--state must be one of "open","retrying","parked","unresolved","resolved","discarded","any"`,
		"exceptions list --state=foo":                             `--state must be one of "waiting","open","held","applied","settled","any"`,
		"outbox list --state=foo":                                 `--state must be one of "any","pending","backoff","behind","failed"`,
		"why x --lang=fr":                                         `--lang must be one of "auto","en","zh"`,
		"doubts settle notify/1 --reason=x --outcome=x":           `--outcome must be one of "happened","again"`,
		"replay plan x --from=foo":                                `--from must be one of "failures","outbox","stream"`,
		"replay create x --reason=x --from=foo":                   `--from must be one of "failures","outbox","stream"`,
		"dead-letters list --limit=abc":                           "--limit",
		"dead-letters list --limit=0":                             "--limit 0: at least 1",
		"exceptions list --limit=-1":                              "--limit -1: at least 1",
		"doubts list --limit=0":                                   "--limit 0: at least 1",
		"outbox list --limit=0":                                   "--limit 0: at least 1",
		"replay plan x --from=outbox --since=-2h":                 "--since -2h0m0s",
		"replay plan x --from=stream --until=-1m":                 "--until -1m0s",
		"replay create x --reason=x --from=outbox --since=-2h":    "--since -2h0m0s",
		"replay create x --reason=x --from=outbox --per-second=0": "--per-second 0: at least 1",
	} {
		var cli shopctl.Commands
		parser, err := kong.New(&cli, kong.Name("shopctl"), kong.BindTo(t.Context(), (*context.Context)(nil)), kong.BindTo(new(bytes.Buffer), (*io.Writer)(nil)))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.Parse(strings.Fields(command))
		if err == nil {
			err = parsed.Run()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", command, err, want)
		}
	}
}
