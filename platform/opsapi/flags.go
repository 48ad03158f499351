package opsapi

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"orderpaid/platform/messaging"
	"orderpaid/platform/process"
)

// Flags are what every service is told about operating it. A service's Config
// embeds them beside [process.Service]. The zero value works: nobody may use the
// ops API, payloads of failures are kept in the clear, no other service is known.
type Flags struct {
	OpsTokens     process.Secret `name:"ops-tokens" env:"OPS_TOKENS" placeholder:"NAME:ROLE:TOKEN" help:"Who may use the ops API, separated by blanks. The name is who acts, as the audit log shows it; roles are viewer, operator, approver and peer; a token has at least 16 characters. Without any, nobody may."`
	OpsTokensFile string         `name:"ops-tokens-file" env:"OPS_TOKENS_FILE" placeholder:"FILE" help:"A file with more of them, one on a line."`

	OpsPeers     map[string]string `name:"ops-peer" env:"OPS_PEERS" mapsep:" " placeholder:"SERVICE=URL" help:"The ops API of another service, asked for missing events and for replays. Repeat it, or separate several with blanks."`
	OpsPeerToken process.Secret    `name:"ops-peer-token" env:"OPS_PEER_TOKEN" help:"The token that this service shows to the others; there it needs the role peer."`

	ConsumerLease time.Duration `name:"consumer-lease" env:"CONSUMER_LEASE" default:"10s" help:"How long the active replica of a consumer keeps its place without a sign of life: the longest wait after it was killed. At least 1s. Defaults to 10s."`

	PayloadKeys process.Secret `name:"payload-keys" env:"PAYLOAD_KEYS" placeholder:"NAME:BASE64" help:"Keys of 32 bytes that seal the payloads of recorded failures, separated by blanks; the first seals, all open. Without any, payloads are kept as they came."`

	OpsOwner   string         `name:"ops-owner" env:"OPS_OWNER" default:"the engineer on call" help:"Who looks after this service's dead letters; shown with each. Defaults to the engineer on call."`
	OpsRunbook string         `name:"ops-runbook" env:"OPS_RUNBOOK" default:"docs/05-operate.md" help:"Where they read what to do. Defaults to docs/05-operate.md."`
	TicketURL  process.Secret `name:"ticket-url" env:"TICKET_URL" placeholder:"URL" help:"Where a ticket is opened, by POST, for each dead letter. Empty: none."`
}

// ConsumerConfig is what consumers need to know of the flags.
func (f Flags) ConsumerConfig() (messaging.ConsumerConfig, error) {
	if f.ConsumerLease != 0 && f.ConsumerLease < time.Second {
		return messaging.ConsumerConfig{}, fmt.Errorf("--consumer-lease: %v is too short to be renewed in time, at least 1s", f.ConsumerLease)
	}
	keys, err := f.keys()
	return messaging.ConsumerConfig{Lease: f.ConsumerLease, PayloadKeys: keys, Owner: f.OpsOwner, Runbook: f.OpsRunbook}, err
}

// keys returns nil if there are none.
func (f Flags) keys() (*messaging.PayloadKeys, error) {
	entries := strings.Fields(string(f.PayloadKeys))
	if len(entries) == 0 {
		return nil, nil
	}
	keys := &messaging.PayloadKeys{Keys: map[string][]byte{}}
	for i, entry := range entries {
		name, encoded, found := strings.Cut(entry, ":")
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !found || name == "" || err != nil {
			return nil, fmt.Errorf("payload key %d is not name:base64", i+1) // without its text: it is a secret
		}
		if i == 0 {
			keys.Current = name
		}
		keys.Keys[name] = key
	}
	if err := keys.Check(); err != nil {
		return nil, fmt.Errorf("payload keys: %w", err)
	}
	return keys, nil
}

// peer returns the ops API of another service.
func (f Flags) peer(service string) (*Client, error) {
	base, known := f.OpsPeers[service]
	if !known {
		return nil, fmt.Errorf("the ops API of %s is not known: --ops-peer %s=URL", service, service)
	}
	c, err := NewClient(service, base, f.OpsPeerToken)
	if err != nil {
		return nil, fmt.Errorf("--ops-peer %s: %w", service, err)
	}
	return c, nil
}

// Backfill returns what asks the owner of a consumer's aggregates for missing
// versions, or nil if its ops API is not known: then they can only come by
// themselves.
func (f Flags) Backfill(owner string) (messaging.Backfill, error) {
	if f.OpsPeers[owner] == "" {
		return nil, nil
	}
	c, err := f.peer(owner)
	if err != nil {
		return nil, err
	}
	return c.Between, nil
}

// checkURL refuses an address that could not be asked.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("not an address like http://host:port") // without its text: it may hold a password
	}
	return nil
}
