package natsbroker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// An address says how to reach NATS and as whom, in one string, as a
// connection string of PostgreSQL does:
//
//	nats://a:4222,nats://b:4222?nkey=/secrets/nats.nk
//	tls://nats:4222?nkey=/secrets/nats.nk&ca=/certs/ca.crt&cert=/certs/points.crt&key=/certs/points.key
//
//	nkey       file with the seed of the client's key; the server knows only its public half
//	ca         file with the authorities that the server's certificate may come from, instead of the system's
//	cert, key  files with the client's own certificate, for servers that ask for one
//
// Files, so that a secret is neither on a command line nor in an environment.
// A parameter that is not known is an error: skipped, a misspelt one would
// connect without it.
type address struct {
	servers string
	options []nats.Option
}

func parseAddress(text string) (address, error) {
	servers, query, _ := strings.Cut(text, "?")
	a := address{servers: servers}
	params, err := url.ParseQuery(query)
	if err != nil {
		return a, errors.New("the parameters behind the address cannot be read")
	}
	for name, values := range params {
		if !slices.Contains([]string{"nkey", "ca", "cert", "key"}, name) || len(values) != 1 || values[0] == "" {
			return a, errors.New("an address takes the parameters nkey, ca, cert and key, each once and with a file")
		}
	}
	if seed := params.Get("nkey"); seed != "" {
		option, err := nats.NkeyOptionFromSeed(seed)
		if err != nil {
			return a, fmt.Errorf("nkey %s: %w", seed, err)
		}
		a.options = append(a.options, option)
	}
	return a, a.addTLS(params.Get("ca"), params.Get("cert"), params.Get("key"))
}

// addTLS makes the connection refuse a server without TLS as soon as one of
// the files is given. They are read for each connection anew: a certificate is
// renewed in its file, and a process that kept the one of its start would be
// refused after the next break, for ever.
func (a *address) addTLS(ca, cert, key string) error {
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	if (cert == "") != (key == "") {
		return errors.New("cert and key belong together")
	}
	a.options = append(a.options, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS13}))
	if ca != "" {
		a.options = append(a.options, nats.RootCAs(ca))
	}
	if cert != "" {
		a.options = append(a.options, nats.ClientCert(cert, key))
	}
	return nil
}

// Dial returns a plain connection for tools, under the name that permissions
// go by: it receives on _INBOX_<name>.> only. It fails if the server does not
// answer.
func Dial(ctx context.Context, url, name string) (*nats.Conn, error) {
	if !clientName.MatchString(name) {
		return nil, fmt.Errorf("name %q is not made of 1 to 64 letters, digits, '-' and '_'", name)
	}
	a, err := parseAddress(url)
	if err != nil {
		return nil, fmt.Errorf("connect to nats as %s: %w", name, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	nc, err := nats.Connect(a.servers, append(a.options, nats.Name(name), nats.CustomInboxPrefix("_INBOX_"+name))...)
	if err != nil {
		return nil, fmt.Errorf("connect to nats as %s: %w", name, withoutURL(err))
	}
	return nc, nil
}
