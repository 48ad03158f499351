package main

import (
	"testing"

	"github.com/alecthomas/kong"
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
