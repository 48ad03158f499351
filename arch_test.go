package orderpaid_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The shape of the tree, as rules that a machine keeps. arch_rules_test.go has
// them; here each one is held against the repository, and against a made-up
// tree that breaks it: a rule that cannot fail keeps nothing.
var rules = []struct {
	name   string
	check  func(tree) []string
	broken fstest.MapFS // over the sound tree
	want   string       // what the rule says about it
}{
	{"services know no other service, and nothing that is built on services", servicesStandAlone,
		fstest.MapFS{"services/points/consume.go": source(`import "orderpaid/services/order"`)},
		"services/points/consume.go imports orderpaid/services/order"},
	{"not even their tests do", servicesStandAlone,
		fstest.MapFS{"services/points/consume_test.go": source(`import "orderpaid/services/order"`)},
		"services/points/consume_test.go imports orderpaid/services/order"},
	{"the platform knows no service", platformStandsAlone,
		fstest.MapFS{"platform/messaging/inbox.go": source(`import "orderpaid/services/points"`)},
		"platform/messaging/inbox.go imports orderpaid/services/points"},
	{"contracts and migrations are data", dataStandsAlone,
		fstest.MapFS{"contracts/contracts.go": source(`import "orderpaid/platform/messaging"`)},
		"contracts/contracts.go imports orderpaid/platform/messaging"},
	{"the domain does no I/O", domainIsPure,
		fstest.MapFS{"services/points/domain.go": source(`import "github.com/jackc/pgx/v5"`)},
		"services/points/domain.go imports github.com/jackc/pgx/v5"},
	{"the domain does not know what messages are", domainIsPure,
		fstest.MapFS{"services/points/domain.go": source(`import "orderpaid/platform/messaging"`)},
		"services/points/domain.go imports orderpaid/platform/messaging"},
	{"the domain reads no clock", domainIsPure,
		fstest.MapFS{"services/points/domain.go": source(`import "time"`, `var now = time.Now()`)},
		"services/points/domain.go calls time.Now"},
	{"nor rolls dice", domainIsPure,
		fstest.MapFS{"services/points/domain.go": source(`import "github.com/google/uuid"`, `var id = uuid.New()`)},
		"services/points/domain.go calls uuid.New"},
	{"every service has the same files", servicesLookAlike,
		fstest.MapFS{"services/points/store.go": nil},
		"services/points has no store.go"},
	{"a service has no file of its own that is not listed", servicesLookAlike,
		fstest.MapFS{"services/points/helpers.go": source("")},
		"services/points/helpers.go is not a file that services have; if it is for something that only points does, name it in ownFiles in arch_rules_test.go"},
	{"a service has no folders", servicesLookAlike,
		fstest.MapFS{"services/points/internal/rules/rules.go": source("")},
		"services/points/internal/rules is a folder within a service"},
	{"every service has a manifest for Kubernetes", servicesAreDeployed,
		fstest.MapFS{"deploy/k8s/points.yaml": nil},
		"services/points has no Kubernetes manifest in deploy/k8s/points.yaml"},
	{"a manifest that is not applied is none", servicesAreDeployed,
		fstest.MapFS{"deploy/k8s/kustomization.yaml": {Data: []byte("resources: [order.yaml]\n")}},
		"services/points has no entry in the kustomization in deploy/k8s/kustomization.yaml"},
	{"every service is scraped", servicesAreDeployed,
		fstest.MapFS{"deploy/observability/prometheus.yml": {Data: []byte("      - names: [order, relay]\n")}},
		"services/points has no target of Prometheus in deploy/observability/prometheus.yml"},
	{"every service is a user of the broker", servicesAreDeployed,
		fstest.MapFS{"deploy/nats/accounts.conf": {Data: []byte("{ nkey: $KEY_ORDER }\n")}},
		"services/points has no user of the broker in deploy/nats/accounts.conf"},
	{"every service has a role in the database", servicesAreDeployed,
		fstest.MapFS{"deploy/postgres/roles.sql": {Data: []byte("('shop_order', 60)\nCREATE DATABASE shop_order OWNER o;\nCREATE DATABASE shop_points OWNER o;\n")}},
		"services/points has no role in the database in deploy/postgres/roles.sql"},
	{"the edge has no SQL", edgeHasNoSQL,
		fstest.MapFS{"services/points/http.go": source(`import "github.com/jackc/pgx/v5/pgxpool"`)},
		"services/points/http.go imports github.com/jackc/pgx/v5/pgxpool"},
	{"transactions are opened where use cases are", transactionsHaveOneRoom,
		fstest.MapFS{"services/points/store.go": source(`import "orderpaid/platform/postgres"`, `var _ = postgres.InTx(nil, nil, nil)`)},
		"services/points/store.go opens a transaction"},
	{"only the adapter knows the broker", brokerIsBehindItsPort,
		fstest.MapFS{"services/points/run.go": source(`import "github.com/nats-io/nats.go"`)},
		"services/points/run.go imports github.com/nats-io/nats.go"},
	{"the core of messaging does not, either", brokerIsBehindItsPort,
		fstest.MapFS{"platform/messaging/relay.go": source(`import "github.com/nats-io/nats.go/jetstream"`)},
		"platform/messaging/relay.go imports github.com/nats-io/nats.go/jetstream"},
	{"a main only reads its configuration and calls", mainsAreSmall,
		fstest.MapFS{"cmd/points/main.go": {Data: []byte("package main\n\nfunc main() {\n" + strings.Repeat("\tprintln()\n", 45) + "}\n")}},
		"cmd/points/main.go has 49 lines"},
	{"every command has a main", mainsAreSmall,
		fstest.MapFS{"cmd/points/main.go": nil, "cmd/points/run.go": source("")},
		"cmd/points has no main.go"},
	{"every contract has a schema and an example", contractsAreComplete,
		fstest.MapFS{"contracts/PointsAwarded.v1.schema.json": nil},
		"contracts/ has no PointsAwarded.v1.schema.json"},
	{"every contract says who sends it", contractsAreComplete,
		fstest.MapFS{"contracts/asyncapi.yaml": {Data: []byte("channels: {}\n")}},
		"contracts/asyncapi.yaml does not name PointsAwarded.v1"},
	{"every kind that a service states or reads has a contract", contractsAreComplete,
		fstest.MapFS{"services/points/events.go": source("type PointsSpent struct{}", "func (PointsSpent) Kind() string { return `PointsSpent` }")},
		"services/points/events.go has the kind PointsSpent, and contracts/ has none"},
	{"tests do not sleep", testsAreHonest,
		fstest.MapFS{"services/points/consume_test.go": source(`import "time"`, `func TestX() { time.Sleep(1) }`)},
		"services/points/consume_test.go:4 sleeps"},
	{"tests are not skipped", testsAreHonest,
		fstest.MapFS{"services/points/consume_test.go": source(`import "testing"`, `func TestX(t *testing.T) { t.Skip() }`)},
		"services/points/consume_test.go:4 skips"},
	{"every dependency has its reason", dependenciesHaveReasons,
		fstest.MapFS{"services/points/store.go": source(`import "github.com/example/orm/v2/dialect"`)},
		"services/points/store.go imports github.com/example/orm, which no page of docs/adr names"},
	{"the module carries no tools", moduleHasNoTools,
		fstest.MapFS{"go.mod": {Data: []byte("module orderpaid\n\nrequire github.com/testcontainers/testcontainers-go v0.45.0\n")}},
		"go.mod requires github.com/testcontainers/testcontainers-go"},
	{"nor a tool directive", moduleHasNoTools,
		fstest.MapFS{"go.mod": {Data: []byte("module orderpaid\n\ntool golang.org/x/tools/cmd/stringer\n")}},
		"go.mod has a tool directive"},
}

func TestTheTreeKeepsItsShape(t *testing.T) {
	t.Parallel()
	tree, err := readTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{} // several rules may share a check
	for _, rule := range rules {
		for _, finding := range rule.check(tree) {
			if !told[finding] {
				t.Errorf("%s: %s", rule.name, finding)
			}
			told[finding] = true
		}
	}
}

func TestEveryRuleCanFail(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			sound := soundTree()
			if got := rule.check(mustRead(t, sound)); len(got) > 0 {
				t.Fatalf("the sound tree: got %q, want nothing", got)
			}
			for name, file := range rule.broken {
				if file == nil {
					delete(sound, name)
				} else {
					sound[name] = file
				}
			}
			if got, want := rule.check(mustRead(t, sound)), []string{rule.want}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// soundTree is a repository that keeps every rule.
func soundTree() fstest.MapFS {
	fsys := fstest.MapFS{
		"go.mod":                                  {Data: []byte("module orderpaid\n\nrequire github.com/jackc/pgx/v5 v5.12.0\n")},
		"docs/adr/0014-pgx.md":                    {Data: []byte("github.com/jackc/pgx and github.com/nats-io/nats.go\n")},
		"contracts/contracts.go":                  source(`import "embed"`),
		"contracts/asyncapi.yaml":                 {Data: []byte("PointsAwarded.v1\n")},
		"contracts/PointsAwarded.v1.schema.json":  {Data: []byte("{}")},
		"contracts/PointsAwarded.v1.example.json": {Data: []byte("{}")},
		"platform/messaging/inbox.go":             source(`import "github.com/jackc/pgx/v5"`),
		"platform/messaging/natsbroker/broker.go": source(`import "github.com/nats-io/nats.go"`),
		"deploy/k8s/kustomization.yaml":           {Data: []byte("resources: [order.yaml, points.yaml]\n")},
		"deploy/observability/prometheus.yml":     {Data: []byte("      - names: [order, points, relay]\n")},
		"deploy/nats/accounts.conf":               {Data: []byte("{ nkey: $KEY_ORDER }\n{ nkey: $KEY_POINTS }\n")},
		"deploy/postgres/roles.sql":               {Data: []byte("('shop_order', 60), ('shop_points', 60)\nCREATE DATABASE shop_order OWNER o;\nCREATE DATABASE shop_points OWNER o;\n")},
		"cmd/points/main.go":                      source(`import "orderpaid/services/points"`),
		"tools/other/go.mod":                      {Data: []byte("module other\n")},
		"tools/other/main.go":                     source(`import "github.com/example/of-another-module"`),
	}
	for _, service := range []string{"order", "points"} {
		for _, name := range serviceFiles {
			fsys["services/"+service+"/"+name] = source("")
		}
		fsys["deploy/k8s/"+service+".yaml"] = &fstest.MapFile{Data: []byte("kind: Deployment\n")}
		fsys["services/"+service+"/consume_test.go"] = source(`import "testing"`)
		fsys["services/"+service+"/service.go"] = source(`import "orderpaid/platform/postgres"`, `var _ = postgres.InTx(nil, nil, nil)`)
	}
	fsys["services/points/events.go"] = source("type PointsAwarded struct{}", "func (PointsAwarded) Kind() string { return `PointsAwarded` }")
	return fsys
}

// source returns a Go file of the declarations.
func source(declarations ...string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("package p\n\n" + strings.Join(declarations, "\n") + "\n")}
}

func mustRead(t *testing.T, fsys fstest.MapFS) tree {
	t.Helper()
	tree, err := readTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
