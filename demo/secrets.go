package demo

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"orderpaid/platform/opsapi"
)

// SecretsCommand makes every secret of a shop in containers: passwords, key
// pairs and the provider's signing key, each in the folder of the process that
// needs it, so that no process can read another one's. No secret is in an
// image, in a compose file or in an environment.
type SecretsCommand struct {
	Dir string `arg:"" help:"The folder that gets one folder for each process."`
}

// Help is printed below the flags.
func (SecretsCommand) Help() string {
	return "What exists is kept: data and secrets belong together, and end together.\n\nExample: demo secrets /secrets"
}

// Who needs what. A password is of the PostgreSQL role, a key pair of the
// NATS user with that name.
var (
	secretRoles = map[string]string{ // process → role
		"migrate": "shop_owner", "order": "shop_order", "points": "shop_points", "notify": "shop_notify",
		"search": "shop_search", "console": "shop_console", "relay": "shop_relay", "check": "shop_audit",
	}
	secretKeys = map[string]string{ // process → NATS user
		"topology": "topology", "relay": "relay", "order": "order", "points": "points", "notify": "notify",
		"search": "search", "console": "console", "check": "audit", "partner": "partner",
	}
	webhookSigners = []string{"order", "sim", "load", "check"}
	secretOperated = []string{"order", "points", "notify", "search", "console"} // those with an ops API
)

// Run writes what is missing. A marker is written last: without it, everything
// is made anew.
func (c SecretsCommand) Run(out io.Writer) error {
	marker := filepath.Join(c.Dir, "nats", "complete")
	if exists(marker) {
		fmt.Fprintln(out, "the secrets exist")
		return nil
	}
	w := secretWriter{dir: c.Dir}
	w.passwords()
	w.keyPairs()
	w.webhook()
	w.operators()
	w.write("nats/complete", "\n")
	if w.err != nil {
		return fmt.Errorf("secrets: %w", w.err)
	}
	fmt.Fprintln(out, "made the secrets of this shop")
	return nil
}

type secretWriter struct {
	dir string
	err error
}

// write makes a file that every user of its container may read: the volume,
// which no other container has, is what keeps it secret.
func (w *secretWriter) write(name, text string) {
	path := filepath.Join(w.dir, filepath.FromSlash(name))
	w.err = errors.Join(w.err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

func (w *secretWriter) passwords() {
	w.write("postgres/superuser", rand.Text())
	var variables strings.Builder
	for process, role := range secretRoles {
		password := rand.Text() // letters and digits: nothing to escape
		fmt.Fprintf(&variables, "SET orderpaid.%s = '%s';\n", role, password)
		w.write(process+"/pgpass", fmt.Sprintf("*:*:*:%s:%s\n", role, password))
	}
	w.write("postgres/passwords.sql", variables.String())
}

// keyPairs gives seeds to the clients and public keys to the server.
func (w *secretWriter) keyPairs() {
	var public strings.Builder
	for process, user := range secretKeys {
		pair, err := nkeys.CreateUser()
		if err != nil {
			w.err = errors.Join(w.err, err)
			return
		}
		seed, seedErr := pair.Seed()
		key, keyErr := pair.PublicKey()
		w.err = errors.Join(w.err, seedErr, keyErr)
		w.write(process+"/nats.nk", string(seed)+"\n")
		fmt.Fprintf(&public, "KEY_%s: %s\n", strings.ToUpper(user), key)
	}
	w.write("nats/keys.conf", public.String())
	w.write("nats/routes.conf", routes(rand.Text()))
}

// routes is how the servers of a cluster find and prove each other. Whoever
// can open a route is a server, above all permissions.
func routes(password string) string {
	var list strings.Builder
	for _, host := range []string{"nats", "nats-2", "nats-3"} {
		fmt.Fprintf(&list, "    \"nats-route://route:%s@%s:6222\"\n", password, host)
	}
	return fmt.Sprintf("cluster {\n  name: orderpaid\n  listen: 0.0.0.0:6222\n  authorization { user: route, password: %q }\n  routes: [\n%s  ]\n}\n",
		password, list.String())
}

func (w *secretWriter) webhook() {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	for _, process := range webhookSigners {
		w.write(process+"/webhook", "whsec_"+base64.StdEncoding.EncodeToString(key)+"\n")
	}
}

// operators makes the tokens of the ops APIs: of two people, because a large
// replay needs a second one, and of each service, to ask the others. Services
// know all of them by their hashes: one that was taken over can act as itself
// and as nobody else. Only the demo's console holds people's tokens, because
// there one click makes everybody Alice or Bob.
func (w *secretWriter) operators() {
	alice, bob, viewer := rand.Text(), rand.Text(), rand.Text()
	bearers := hashedBearer("alice", opsapi.Operator, alice) + hashedBearer("bob", opsapi.Approver, bob) + hashedBearer("viewer", opsapi.Viewer, viewer)
	shows := map[string]string{"console": viewer} // it looks, for whoever has not signed in
	for _, process := range secretOperated {
		if process != "console" {
			shows[process] = rand.Text()
			bearers += hashedBearer(process, opsapi.Peer, shows[process])
		}
	}
	for _, process := range secretOperated {
		key := make([]byte, 32)
		rand.Read(key) // never fails
		w.write(process+"/ops-tokens", bearers)
		w.write(process+"/ops-peer", shows[process]+"\n")
		w.write(process+"/payload-keys", "first:"+base64.StdEncoding.EncodeToString(key)+"\n")
	}
	w.write("console/demo-actors", "alice:operator:"+alice+" bob:approver:"+bob+"\n")
	w.write("check/ops-alice", alice+"\n")
	w.write("check/ops-bob", bob+"\n")
	w.write("check/ops-viewer", viewer+"\n")
}

func hashedBearer(name string, role opsapi.Role, token string) string {
	return fmt.Sprintf("%s:%s:%s\n", name, role, opsapi.HashedToken(token))
}
