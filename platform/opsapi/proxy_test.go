package opsapi

import (
	"net/http"
	"testing"
)

// C142: a proxy in the environment is for calls to the outside. What the
// environment says is read once in the life of a process, so it is the transport
// that is looked at.
func TestOurOwnServicesAreAskedPastAnyProxy(t *testing.T) {
	t.Parallel()
	c, err := NewClient("order", "http://order:9080", "")
	if err != nil {
		t.Fatal(err)
	}
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok || transport.Proxy != nil {
		t.Errorf("got %T, which asks for a proxy, want one that does not", c.http.Transport)
	}
	if transport == http.DefaultTransport || transport.MaxIdleConns == 0 || transport.DialContext == nil {
		t.Errorf("got %+v, want the usual limits", transport)
	}
}
