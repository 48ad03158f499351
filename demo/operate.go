package demo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Tokens are the bearers of the demo's ops APIs, the same at every service.
// Alice and Bob are two, because a large replay needs a second person.
type Tokens struct{ Alice, Bob, Console, Peer string }

// keptTokens returns the tokens in a file, and makes them first if there are
// none: whoever is signed in stays so over a restart.
func keptTokens(file string) (Tokens, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		raw = []byte(strings.Join([]string{rand.Text(), rand.Text(), rand.Text(), rand.Text()}, "\n"))
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		return Tokens{}, fmt.Errorf("ops tokens: %w", err)
	}
	lines := strings.Fields(string(raw))
	if len(lines) != 4 {
		return Tokens{}, fmt.Errorf("ops tokens: %s has not four lines; delete it, and it is made anew", file)
	}
	return Tokens{lines[0], lines[1], lines[2], lines[3]}, nil
}

// pickAddresses gives every service and the sim their addresses: each must know
// the others' before it starts.
func (s *Stack) pickAddresses() (err error) {
	for _, name := range append([]string{"sim"}, everyService...) {
		what := "the " + name + " service"
		if name == "sim" || name == "console" {
			what = "the " + name
		}
		if s.addr[name], err = s.address(what, httpPorts[name]); err != nil {
			return err
		}
		s.URL[name] = "http://" + s.addr[name]
		if name == "sim" {
			continue
		}
		if s.opsAddr[name], err = s.address("the operators' side of "+what, httpPorts[name]+1000); err != nil {
			return err
		}
		s.OpsURL[name] = "http://" + s.opsAddr[name]
	}
	return nil
}

// opsEnv says who may use a service's ops API, and where those of the others are.
func (s *Stack) opsEnv(service string) []string {
	peers := make([]string, len(everyService))
	for i, name := range everyService {
		peers[i] = name + "=" + s.OpsURL[name]
	}
	token := s.Tokens.Peer
	if service == "console" {
		token = s.Tokens.Console
	}
	return []string{
		"OPS_TOKENS=alice:operator:" + s.Tokens.Alice + " bob:approver:" + s.Tokens.Bob +
			" console:viewer:" + s.Tokens.Console + " services:peer:" + s.Tokens.Peer,
		"OPS_PEERS=" + strings.Join(peers, " "), "OPS_PEER_TOKEN=" + token,
	}
}

// consoleEnv opens the console to everybody on this machine, lends them Alice
// and Bob, and gives them the buttons that break things.
func (s *Stack) consoleEnv() []string {
	return []string{
		"ORDER_URL=" + s.URL["order"], "POINTS_URL=" + s.URL["points"], "NOTIFY_URL=" + s.URL["notify"], "SEARCH_URL=" + s.URL["search"],
		"SIM_URL=" + s.URL["sim"], "PUBLIC_VIEW=1",
		"DEMO_ACTORS=alice:operator:" + s.Tokens.Alice + " bob:approver:" + s.Tokens.Bob,
		"CONTROL_URL=" + s.control.url, "CONTROL_TOKEN=" + s.control.token,
	}
}
