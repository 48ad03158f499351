package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// tokens are what customers show to the shop, one for each, kept for a part of
// their life. A nil *tokens has none: for a shop that asks for none.
type tokens struct {
	issuer string // base URL of the sim
	http   *http.Client

	mu   sync.Mutex
	held map[string]heldToken
}

type heldToken struct {
	raw   string
	until time.Time
}

// tokenUse is less than the life of a token.
const tokenUse = 5 * time.Minute

func newTokens(issuer string, client *http.Client) *tokens {
	if issuer == "" {
		return nil
	}
	return &tokens{issuer: issuer, http: client, held: map[string]heldToken{}}
}

// sign puts the user's token on a request. Where none can be had, the request
// goes without: the shop refuses it, and it is made again.
func (t *tokens) sign(ctx context.Context, req *http.Request, user string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	held := t.held[user]
	t.mu.Unlock()
	if time.Now().After(held.until) {
		raw, err := t.fetch(ctx, user)
		if err != nil {
			return
		}
		held = heldToken{raw, time.Now().Add(tokenUse)}
		t.mu.Lock()
		t.held[user] = held
		t.mu.Unlock()
	}
	req.Header.Set("Authorization", "Bearer "+held.raw)
}

// forget drops a token that the shop does not take any more: the issuer's key
// may be a new one.
func (t *tokens) forget(user string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	delete(t.held, user)
	t.mu.Unlock()
}

func (t *tokens) fetch(ctx context.Context, user string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.issuer+"/token?user="+url.QueryEscape(user), nil)
	if err != nil {
		return "", err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<14))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("token of a customer: %s", resp.Status)
	}
	return string(raw), err
}
