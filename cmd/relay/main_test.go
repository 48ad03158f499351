package main

import (
	"testing"

	"github.com/alecthomas/kong"

	"orderpaid/platform/messaging"
)

func TestDatabasesComeFromFlagsOrTheEnvironment(t *testing.T) {
	for _, source := range []struct {
		name string
		args []string
		env  string
	}{
		{"flags", []string{"--database", "order=postgres://r@h/shop_order?sslmode=disable", "--database", "points=postgres://r@h/shop_points"}, ""},
		{"environment", nil, "order=postgres://r@h/shop_order?sslmode=disable points=postgres://r@h/shop_points"},
	} {
		t.Run(source.name, func(t *testing.T) {
			if source.env != "" {
				t.Setenv("RELAY_DATABASES", source.env)
			}
			var cfg config
			if _, err := kong.Must(&cfg).Parse(source.args); err != nil {
				t.Fatal(err)
			}
			if got, want := len(cfg.Databases), 2; got != want {
				t.Fatalf("%d databases, want %d: %v", got, want, cfg.Databases)
			}
			if got, want := string(cfg.Databases["order"]), "postgres://r@h/shop_order?sslmode=disable"; got != want {
				t.Errorf("order is at %q, want %q", got, want)
			}
		})
	}
}

func TestAnAddressThatIsNoneIsRefusedWithoutShowingIt(t *testing.T) {
	t.Parallel()
	var cfg config
	_, err := kong.Must(&cfg).Parse([]string{"--database", "order=postgres://u:sesame@h:x/d"})
	if err == nil {
		t.Fatal("accepted")
	}
	if got, want := err.Error(), "--database order: not a PostgreSQL address like postgres://user:password@host:5432/database"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A limit below what is alive makes the collector take half of the processor.
func TestTheMemoryLimitIsAboveTheBatchesOfAllDatabases(t *testing.T) {
	t.Parallel()
	for _, databases := range []int{1, 4, 16} {
		alive := int64(databases) * 4 * 32 * messaging.MaxEventBytes * 2 // four lanes, a batch of 32 of the largest events, read and sent
		if got := memoryLimit(databases); got <= alive {
			t.Errorf("%d databases: got a limit of %d MiB, want more than the %d MiB of their batches", databases, got>>20, alive>>20)
		}
	}
}
