package auth

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
)

// Issuer says whose tokens customers show. A service's Config embeds them beside
// [orderpaid/platform/process.Service].
type Issuer struct {
	AuthIssuer   string `name:"auth-issuer" env:"AUTH_ISSUER" placeholder:"URL" help:"Who issues customers' tokens, as their claim iss has it. Empty: nobody is asked for a token, and everybody sees everything; for one person's machine only, so the API must then listen on a loopback address."`
	AuthAudience string `name:"auth-audience" env:"AUTH_AUDIENCE" default:"orderpaid" help:"For whom tokens must be issued, as their claim aud has it. Defaults to orderpaid."`
	AuthKeysURL  string `name:"auth-keys-url" env:"AUTH_KEYS_URL" placeholder:"URL" help:"Where the issuer publishes its keys. Defaults to /.well-known/jwks.json at the issuer."`
	AuthRate     int    `name:"auth-rate" env:"AUTH_RATE" default:"20" help:"Requests that one customer may make in a second, over ten seconds. Defaults to 20."`
}

// Guard returns what stands before customers' routes of an API that listens on
// httpAddr. Without an issuer nothing does, so a setting that was forgotten must
// not open the shop to a network: then only a loopback address is taken.
func (f Issuer) Guard(httpAddr string) (*Guard, error) {
	if f.AuthIssuer == "" {
		if !loopback(httpAddr) {
			return nil, errors.New("--auth-issuer: without one everybody sees everything, so --http-addr must be a loopback address, such as 127.0.0.1:8080")
		}
		slog.Warn("customers are not asked for tokens: everybody sees everything", "flag", "--auth-issuer")
		return Open(), nil
	}
	keysURL := f.AuthKeysURL
	if keysURL == "" {
		keysURL = f.AuthIssuer + "/.well-known/jwks.json"
	}
	u, err := url.Parse(keysURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("--auth-issuer or --auth-keys-url: not an address like https://issuer.example")
	case f.AuthAudience == "":
		return nil, errors.New("--auth-audience: empty would take tokens that are for others")
	case f.AuthRate < 1:
		return nil, errors.New("--auth-rate: must be at least 1")
	}
	return New(f.AuthIssuer, f.AuthAudience, keysURL, f.AuthRate), nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
