package process_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"orderpaid/platform/pgtest"
	"orderpaid/platform/process"
)

func TestSecretIsMaskedHoweverItIsPrinted(t *testing.T) {
	t.Parallel()
	type nested struct {
		URL  process.Secret
		Keys map[string]process.Secret
	}
	secret := process.Secret("geheim")
	value := nested{secret, map[string]process.Secret{"a": secret}}
	asJSON, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", secret, "nested", value)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", secret, "nested", value)
	for _, got := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%s %v %q %+v %#v", secret, secret, secret, value, value),
		fmt.Errorf("open %s", secret).Error(), string(asJSON), log.String(),
	} {
		if strings.Contains(got, "geheim") || !strings.Contains(got, "***") {
			t.Errorf("printed as %s", got)
		}
	}
	if got := process.Secret("").String(); got != "" {
		t.Errorf("an absent secret prints as %q, want nothing", got)
	}
}

func TestPoolIsOpenedUnderItsPurpose(t *testing.T) {
	t.Parallel()
	svc := process.Service{DatabaseURL: addressOf(t), DatabaseConns: 3}
	pool, err := svc.OpenPool(t.Context(), "points consumers")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var name string
	if err := pool.QueryRow(t.Context(), `SHOW application_name`).Scan(&name); err != nil || name != "points consumers" {
		t.Errorf("application_name = %q, %v; want points consumers", name, err)
	}
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("connections = %d, want 3", got)
	}
}

func TestDatabaseOutOfReachSaysWhatToCheck(t *testing.T) {
	t.Parallel()
	svc := process.Service{DatabaseURL: "postgres://shop_points:geheim@127.0.0.1:1/shop_points", DatabaseConns: 2}
	_, err := svc.OpenPool(t.Context(), "points")
	if err == nil || !strings.Contains(err.Error(), "--database-url") || strings.Contains(err.Error(), "geheim") {
		t.Errorf("OpenPool = %v, want an error that names the flag and no password", err)
	}
}

func TestServiceRefusesAnOldSchemaUnlessItMayMigrate(t *testing.T) {
	t.Parallel()
	url := addressOf(t)
	svc := process.Service{DatabaseURL: url, DatabaseConns: 2}
	pool, err := svc.OpenPool(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := svc.PrepareDatabase(t.Context(), "order", pool); err == nil || !strings.Contains(err.Error(), "shopctl migrate") {
		t.Errorf("PrepareDatabase = %v, want a refusal that says how to migrate", err)
	}
	svc.MigrateURL = url
	if err := svc.PrepareDatabase(t.Context(), "order", pool); err != nil {
		t.Fatal(err)
	}
	svc.MigrateURL = ""
	if err := svc.PrepareDatabase(t.Context(), "order", pool); err != nil {
		t.Errorf("PrepareDatabase after the migration = %v, want nil", err)
	}
}

// addressOf returns the address of a database that has the messaging tables
// and no others.
func addressOf(t *testing.T) process.Secret {
	t.Helper()
	return process.Secret(pgtest.New(t, "messaging").Config().ConnString())
}
