package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"orderpaid/platform/opsapi"
	"orderpaid/platform/strictjson"
)

// An upstream is another service as this one sees it: a base URL and a token.
// Whatever it cannot tell is an error that a page shows beside the rest.
type upstream struct {
	name  string
	base  string // without a slash at the end
	token string
	login *login // where a token comes from that is not given; nil: nowhere
	http  *http.Client
}

// upstreamTimeout is what one question may take. A page asks several services
// at once, and must not wait for the one that is away.
const upstreamTimeout = 1500 * time.Millisecond

func newUpstream(name, base, token string) *upstream {
	return &upstream{name: name, base: strings.TrimRight(base, "/"), token: token,
		http: &http.Client{Timeout: upstreamTimeout, Transport: otelhttp.NewTransport(opsapi.Direct())}}
}

// errSilent: the service gave no answer at all.
var errSilent = errors.New("does not answer")

// A refusal is an answer that says no.
type refusal struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (r *refusal) Error() string { return fmt.Sprintf("%s (%s)", r.Detail, r.Code) }

// maxAnswer bounds what is read of an answer.
const maxAnswer = 8 << 20

// get reads the JSON at path into v.
func (u *upstream) get(ctx context.Context, path string, v any) error {
	return u.call(ctx, http.MethodGet, path, nil, nil, v)
}

// post sends body and reads the answer into v, which may be nil.
func (u *upstream) post(ctx context.Context, path string, body, v any) error {
	return u.call(ctx, http.MethodPost, path, nil, body, v)
}

func (u *upstream) call(ctx context.Context, method, path string, header http.Header, body, v any) error {
	if u == nil || u.base == "" {
		return errSilent
	}
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("ask %s: %w", u.name, err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.base+path, payload)
	if err != nil {
		return fmt.Errorf("ask %s: %w", u.name, err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := u.bearer(ctx); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s %w", u.name, errSilent) // the cause names addresses, and says no more than this
	}
	defer resp.Body.Close()
	return readAnswer(u.name, resp, v)
}

// bearer returns the token to show, or nothing: then the service refuses.
func (u *upstream) bearer(ctx context.Context) string {
	if u.token != "" || u.login == nil {
		return u.token
	}
	return u.login.get(ctx)
}

// A login keeps the token with which this service acts for customers. They do
// not have one: what the browser says is all that the demo's shop knows of them.
type login struct {
	url  string
	http *http.Client

	mu    sync.Mutex
	token string
	until time.Time
}

// loginUse is less than the life of a token, and short: the demo's issuer makes
// a new key at every start.
const loginUse = 30 * time.Second

func (l *login) get(ctx context.Context) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) {
		return l.token
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, nil)
	if err != nil {
		return l.token
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return l.token // the old one may still do
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<14))
	if err == nil && resp.StatusCode == http.StatusOK {
		l.token, l.until = strings.TrimSpace(string(raw)), time.Now().Add(loginUse)
	}
	return l.token
}

func readAnswer(name string, resp *http.Response, v any) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %w", name, errSilent)
	}
	if resp.StatusCode/100 != 2 {
		r := &refusal{Status: resp.StatusCode}
		if err := json.Unmarshal(raw, r); err != nil || r.Code == "" {
			r.Code, r.Detail = "no_problem_document", resp.Status
		}
		return r
	}
	if v == nil || len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("read the answer of %s: %w", name, strictjson.Explain(err))
	}
	return nil
}

// path joins parts to a path, each of them escaped: ids come from people.
func path(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(part))
	}
	return b.String()
}
