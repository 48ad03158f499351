package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// healthCommand, given instead of flags, asks the program of the same
// environment whether it is ready. An image without a shell has nothing else to
// make a health check with.
//
//	points health                                   asks OPS_ADDR for /readyz
//	sim health http://127.0.0.1:8089/readyz         asks that
const healthCommand = "health"

// healthTimeout is longer than a readiness check may take.
const healthTimeout = 4 * time.Second

// health returns exitClean if the program is ready, and exitError with the
// reason on stderr if not.
func health(name string, args []string) int {
	url, err := healthURL(args)
	if err == nil {
		err = askHealth(url)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return exitError
	}
	return exitClean
}

func healthURL(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	host, port, err := net.SplitHostPort(os.Getenv("OPS_ADDR"))
	if err != nil {
		return "", errors.New("health: give a URL, or set OPS_ADDR as for the program that is asked")
	}
	if host == "" || net.ParseIP(host).IsUnspecified() { // it listens everywhere: here too
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/readyz", nil
}

// askHealth asks the program itself, past any proxy: one that the environment
// names for calls to the outside knows no way back in, and would say that a
// program which is well is not.
func askHealth(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	direct := &http.Client{Transport: &http.Transport{Proxy: nil}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	resp, err := direct.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("health: %s: %s", resp.Status, reason)
	}
	return nil
}
