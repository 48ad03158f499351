package doccheck_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"orderpaid/tools/doccheck"
)

// project is a small repository in which every name of its page exists.
var project = map[string]string{
	"go.mod": "module orderpaid\n\nrequire github.com/google/uuid v1.6.0\n",
	"platform/messaging/outbox.go": `package messaging

import "github.com/google/uuid"

type Outbox struct{ Wake func() }

// Add stages an event; the comment's word is message_ghost.
func (o *Outbox) Add(id uuid.UUID) {}

const sqlStage = "INSERT INTO message_outbox (event_id) VALUES ($1)"

const lag = "shop_outbox_publish_lag"

func routes(get func(string)) { get("/v1/orders/{id}") }
`,
	"platform/messaging/outbox_test.go":  "package messaging\n\nimport \"testing\"\n\nfunc TestAnEventIsStagedOnce(t *testing.T) {}\n",
	"migrations/messaging/00001_box.sql": "CREATE TABLE message_outbox (event_id uuid); -- not message_phantom\n",
	"demo/run.go":                        "package demo\n\ntype Command struct {\n\tOrders int `help:\"How many.\"`\n\tAddr string `env:\"SMTP_ADDR\" help:\"Where.\"`\n}\n",
	"cmd/demo/main.go":                   "package main\n\ntype commands struct {\n\tRun struct{} `cmd:\"\" help:\"Run.\"`\n}\n",
	"scripts/demo":                       "#!/usr/bin/env bash\nexec .orderpaid/bin/demo\n",
	"scripts/test":                       "#!/usr/bin/env bash\ncase $1 in --only) ;; esac # --gone\n",
	"Makefile":                           "check: ## run\n\t@scripts/test\n",
	"README.md":                          "# Shop\n\n## Run\n\nSee [guarantees](docs/02-guarantees.md#what-is-promised).\n",
	"README.zh.md":                       "# 商店\n\n## 运行\n",
	"docs/02-guarantees.md":              "# Guarantees\n\n## What is promised\n",
	"docs/zh/02-guarantees.md":           "# 保证\n\n## 承诺了什么\n",
	"docs/adr/README.md":                 "# Decisions\n\n[UUID](0001-uuid.md)\n",
	"docs/adr/0001-uuid.md":              "# UUID\n\ngithub.com/google/uuid\n\n## Context\n\n## Decision\n\n## Consequences\n\n## Evidence\n\n## What would change our mind\n",
}

// check writes the project with changes and returns what is found in it.
func check(t *testing.T, changes map[string]string) []string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range project {
		if _, changed := changes[name]; !changed {
			write(name, text)
		}
	}
	for name, text := range changes {
		if text != "" {
			write(name, text)
		}
	}
	findings, err := doccheck.Check(root)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, len(findings))
	for i, f := range findings {
		got[i] = f.String()
	}
	return got
}

func TestATruePageHasNoFindings(t *testing.T) {
	t.Parallel()
	page := "`platform/messaging/outbox.go` `outbox.go` `platform/*/*.go` `migrations/<owner>/<number>_box.sql` `Outbox.Add` `messaging.Outbox` `Wake`, `sqlStage` in `platform/messaging/outbox.go` `sqlStage` `uuid.UUID`\n" +
		"`message_outbox` `message_outbox.event_id` `shop_outbox_publish_lag_seconds` `SMTP_ADDR` `TestAnEventIsStagedOnce`\n" +
		"`GET /v1/orders/{order_id}` `/v1/orders/{id}` `scripts/demo --orders 5` `scripts/test --only` `github.com/google/uuid` `--orders`\n" +
		"```sh\nSMTP_ADDR=x scripts/demo --orders=5   # a comment\nmake check\ngo test ./...\n.orderpaid/bin/demo run\n```\n" +
		"```go\noutbox.Add(id) // not ghost.Name\n```\n```sql\nSELECT event_id FROM message_outbox;\n```\n```text\nanything_at_all\n```\n"
	got := check(t, map[string]string{"docs/note.md": page})
	if len(got) != 0 {
		t.Errorf("got %s, want nothing", strings.Join(got, "\n"))
	}
}

func TestEveryKindOfNameThatDoesNotExistIsFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"`platform/messaging/inbox.go`":            "there is no file or route `platform/messaging/inbox.go`",
		"`inbox.go`":                               "there is no file `inbox.go`",
		"`Outbox.Remove`":                          "there is no `Outbox.Remove`",
		"`messaging.Inbox`":                        "there is no `messaging.Inbox`",
		"`Inbox`":                                  "nothing is called `Inbox`",
		"`message_inbox`":                          "there is no table, column, metric or field `message_inbox`",
		"`message_ghost`":                          "there is no table, column, metric or field `message_ghost`", // only in a comment
		"`message_phantom`":                        "there is no table, column, metric or field `message_phantom`",
		"`shop_inbox_lag`":                         "there is no table, column, metric or field `shop_inbox_lag`",
		"`SMTP_PORT`":                              "there is no environment variable or constant `SMTP_PORT`",
		"`TestAnEventIsStagedTwice`":               "there is no test `TestAnEventIsStagedTwice`",
		"`POST /v1/refunds`":                       "there is no route `/v1/refunds`",
		"`scripts/bench`":                          "there is no script `scripts/bench`",
		"`--colour`":                               "there is no flag `--colour`",
		"`scripts/demo --colour red`":              "`demo` does not know `--colour`",
		"`scripts/test --everything`":              "`scripts/test` does not know `--everything`",
		"`github.com/google/snowflake`":            "there is no import `github.com/google/snowflake`",
		"```sh\nmake coffee\n```":                  "the Makefile has no target `coffee`",
		"```sh\n.orderpaid/bin/demo dance\n```":    "`demo` has no command `dance`",
		"```sh\nSMTP_PORT=1 scripts/demo\n```":     "nothing reads the variable `SMTP_PORT`",
		"```sh\nbrew install it\n```":              "there is no program `brew`",
		"```go\nmessaging.Inbox{}\n```":            "there is no `messaging.Inbox`",
		"```sql\nSELECT * FROM message_inbox\n```": "there is no table or column `message_inbox`",
		"`Outbox.Add` in `outbox_test.go`":         "`Outbox.Add` is not in `outbox_test.go`",
		"[a page](gone.md)":                        "dead link to `gone.md`",
		"[a part](02-guarantees.md#price)":         "no heading for the link `02-guarantees.md#price`",
	} {
		got := check(t, map[string]string{"docs/note.md": text + "\n"})
		if len(got) != 1 || !strings.HasSuffix(got[0], ": "+want) {
			t.Errorf("%s: got %q, want %s", text, got, want)
		}
	}
}

func TestAFindingSaysWhere(t *testing.T) {
	t.Parallel()
	got := check(t, map[string]string{"docs/note.md": "# Note\n\nfine\n\n```sh\nmake check\nmake coffee\n```\n"})
	want := []string{"docs/note.md:7: the Makefile has no target `coffee`"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings differ (-want +got):\n%s", diff)
	}
}

func TestTwinsMustExistAndNotDriftApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		changes map[string]string
		want    []string
	}{
		"missing": {map[string]string{"docs/zh/02-guarantees.md": ""},
			[]string{"docs/02-guarantees.md: its Chinese twin `docs/zh/02-guarantees.md` is missing"}},
		"alone": {map[string]string{"docs/zh/03-matrix.md": "# 矩阵\n"},
			[]string{"docs/zh/03-matrix.md: its English twin is missing"}},
		"another heading": {map[string]string{"docs/zh/02-guarantees.md": "# 保证\n\n## 承诺\n\n### 更多\n"},
			[]string{"docs/zh/02-guarantees.md: headings 123, but docs/02-guarantees.md has 12"}},
		"another name": {map[string]string{"docs/zh/02-guarantees.md": "# 保证\n\n## 承诺 `Outbox`\n"},
			[]string{"docs/zh/02-guarantees.md: mentions `Outbox`, which docs/02-guarantees.md does not"}},
		"a name less": {map[string]string{"docs/02-guarantees.md": "# Guarantees\n\n## What is promised\n\n`Outbox`\n"},
			[]string{"docs/zh/02-guarantees.md: does not mention `Outbox`, as docs/02-guarantees.md does"}},
	} {
		if diff := cmp.Diff(tc.want, check(t, tc.changes)); diff != "" {
			t.Errorf("%s: findings differ (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecisionsAreListedWholeAndCoverEveryDependency(t *testing.T) {
	t.Parallel()
	got := check(t, map[string]string{
		"docs/adr/README.md":    "# Decisions\n",
		"bench/go.mod":          "module orderpaid/bench\n\nrequire github.com/riverqueue/river v0.51.2\n",
		"bench/river.go":        "package bench\n\nimport _ \"github.com/riverqueue/river\"\n",
		"docs/adr/0001-uuid.md": "# UUID\n\n## Context\n\n## Decision\n\n## Consequences\n\n## Evidence\n",
	})
	want := []string{
		"docs/adr/0001-uuid.md: has no section `what-would-change-our-mind`",
		"docs/adr/README.md: does not list `0001-uuid.md`",
		"docs/adr/README.md: no record decides on the dependency `github.com/google/uuid`",
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings differ (-want +got):\n%s", diff)
	}
}
