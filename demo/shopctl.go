package demo

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files that tell shopctl what runs, and as whom it asks. Whoever runs it
// in the checkout, or below, needs no flags; see shopctl.LoadEnv.
const (
	shopctlFile  = "shopctl.env"  // Alice, who operates
	approverFile = "approver.env" // Bob, who approves what Alice asks for; SHOPCTL_ENV_FILE chooses it
)

// writeShopctl writes both files. They hold tokens, so they are nobody else's.
func (s *Stack) writeShopctl() error {
	var services, databases []string
	for _, name := range slices.Sorted(maps.Keys(s.OpsURL)) {
		services = append(services, name+"="+s.OpsURL[name])
		databases = append(databases, name+"="+s.DSN(Database(name), ownerRole))
	}
	common := fmt.Sprintf("# Written by the demo when it starts. Do not share it: it holds tokens.\nSHOPCTL_SERVICES=%s\nSHOPCTL_DATABASES=%s\nSHOPCTL_ADMIN_URL=%s\nNATS_URL=%s\nORDER_URL=%s\nWEBHOOK_SECRET=%s\n",
		strings.Join(services, " "), strings.Join(databases, " "), s.postgres.DSN("postgres"), s.NATSURL, s.URL["order"], s.WebhookSecret)
	return errors.Join(
		s.writePrivate(shopctlFile, common+"SHOPCTL_TOKEN="+s.Tokens.Alice+"\n"),
		s.writePrivate(approverFile, common+"SHOPCTL_TOKEN="+s.Tokens.Bob+"\n"),
	)
}

// writePrivate replaces a file at once: a command that reads it meanwhile gets
// all of the old one or all of the new one.
func (s *Stack) writePrivate(name, text string) error {
	file := filepath.Join(s.cfg.Dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return fmt.Errorf("settings for shopctl: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("settings for shopctl: %w", err)
	}
	return nil
}
