package opsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/process"
	"orderpaid/platform/strictjson"
)

// A Client asks the ops API of one service. What the service refuses is an
// [*httpserver.Error]; that it does not answer is a [*SilentError].
type Client struct {
	service string
	base    string
	host    string // of base, which may hold a password
	token   process.Secret
	http    *http.Client
}

// clientTimeout bounds one request where the caller's context does not. It is
// longer than the service's own limit, whose answer says more.
const clientTimeout = 15 * time.Second

// maxAnswer bounds what is read of an answer: a page of 1000 of the largest
// events would be more, but then nobody would want it at once.
const maxAnswer = 64 << 20

// NewClient returns a client for the API at base, such as
// http://127.0.0.1:9081. service is the name that is shown in errors.
func NewClient(service, base string, token process.Secret) (*Client, error) {
	if err := checkURL(base); err != nil {
		return nil, err
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, withoutURL(err)
	}
	return &Client{service, strings.TrimRight(base, "/"), u.Host, token, &http.Client{Timeout: clientTimeout, Transport: direct}}, nil
}

// direct is shared by all clients, as their connections are.
var direct = Direct()

// Direct returns a transport for calls to our own services. It goes past any
// proxy that the environment names, as machines of a company have one for calls
// to the outside: that would not find the services, and must not see their
// tokens.
func Direct() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	return transport
}

// A SilentError says that a service does not answer, or no longer than a half
// of an answer.
type SilentError struct {
	Service string
	Host    string // host:port, where it was asked
	Err     error
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("%s at %s does not answer: %v", e.Service, e.Host, e.Err)
}

func (e *SilentError) Unwrap() error { return e.Err }

// Host returns where the service is asked, as host:port.
func (c *Client) Host() string { return c.host }

// Service returns the name of the service that is asked.
func (c *Client) Service() string { return c.service }

// Info says who answers.
func (c *Client) Info(ctx context.Context) (ServiceInfo, error) {
	return get[ServiceInfo](ctx, c, "/ops/service", nil)
}

// Backlog returns what is unfinished.
func (c *Client) Backlog(ctx context.Context) (Backlog, error) {
	return get[Backlog](ctx, c, "/ops/backlog", nil)
}

// OutboxFilter selects staged events. With an aggregate or an id the rest does
// not count.
type OutboxFilter struct {
	AggregateID  string
	EventID      uuid.UUID
	Kind, State  string
	Since, Until time.Time
	Before       string // Next of the page before
	Limit        int    // defaults to 100, at most 1000
}

// Outbox returns a page of staged events, the newest first.
func (c *Client) Outbox(ctx context.Context, f OutboxFilter) (Page[messaging.StagedEvent], error) {
	q := query{}
	q.text("aggregate_id", f.AggregateID)
	q.uuid("event_id", f.EventID)
	q.text("kind", f.Kind)
	q.text("state", f.State)
	q.time("since", f.Since)
	q.time("until", f.Until)
	q.text("before", f.Before)
	q.number("limit", int64(f.Limit))
	return get[Page[messaging.StagedEvent]](ctx, c, "/ops/outbox", q)
}

// OutboxLookup returns which of the events are staged.
func (c *Client) OutboxLookup(ctx context.Context, l OutboxLookup) (OutboxFound, error) {
	return post[OutboxFound](ctx, c, "/ops/outbox/lookup", l)
}

// Between is a [messaging.Backfill] that asks this service.
func (c *Client) Between(ctx context.Context, aggregateType, aggregateID string, after, before int64) ([][]byte, bool, error) {
	q := query{}
	q.text("aggregate_type", aggregateType)
	q.text("aggregate_id", aggregateID)
	q.text("after", formatID(after))
	q.text("before", formatID(before))
	b, err := get[Between](ctx, c, "/ops/outbox/between", q)
	return b.Events, b.Complete, err
}

// Payloads returns events as they were staged, oldest first; at most 1000.
func (c *Client) Payloads(ctx context.Context, ids []uuid.UUID) ([][]byte, error) {
	p, err := post[Payloads](ctx, c, "/ops/outbox/payloads", EventIDs{EventIDs: ids})
	return p.Events, err
}

// Republish puts events that the broker has lost back into the queue.
func (c *Client) Republish(ctx context.Context, ids []uuid.UUID, reason string) (Changed, error) {
	return post[Changed](ctx, c, "/ops/outbox/republish", EventIDs{ids, reason})
}

// Release lets events that the broker had refused be tried again.
func (c *Client) Release(ctx context.Context, ids []uuid.UUID, reason string) (Changed, error) {
	return post[Changed](ctx, c, "/ops/outbox/release", EventIDs{ids, reason})
}

// InboxLookup returns what the service's consumers did with these events.
func (c *Client) InboxLookup(ctx context.Context, ids []uuid.UUID) (InboxFound, error) {
	return post[InboxFound](ctx, c, "/ops/inbox/lookup", EventIDs{EventIDs: ids})
}

// FailureFilter selects dead letters to look at.
type FailureFilter struct {
	FailureSelection
	State string // one state, "unresolved", or empty for all
	After string // Next of the page before
	Size  int    // of a page; defaults to 100
}

// DeadLetters returns a page of dead letters, the oldest first.
func (c *Client) DeadLetters(ctx context.Context, f FailureFilter) (Page[messaging.DeadLetter], error) {
	q := query{}
	q.text("ids", strings.Join(f.IDs, ","))
	q.text("consumer", f.Consumer)
	q.text("state", f.State)
	q.text("code", f.Code)
	q.text("aggregate_type", f.AggregateType)
	q.text("aggregate_id", f.AggregateID)
	q.uuid("event_id", f.EventID)
	q.text("after", f.After)
	q.number("limit", int64(f.Size))
	return get[Page[messaging.DeadLetter]](ctx, c, "/ops/dead-letters", q)
}

// DeadLetterGroups returns the unresolved ones by cause.
func (c *Client) DeadLetterGroups(ctx context.Context) ([]messaging.FailureGroup, error) {
	p, err := get[Page[messaging.FailureGroup]](ctx, c, "/ops/dead-letters/groups", nil)
	return p.Items, err
}

// DeadLetter returns one with its history; the payload is masked.
func (c *Client) DeadLetter(ctx context.Context, id string) (FailureDetail, error) {
	return get[FailureDetail](ctx, c, "/ops/dead-letters/"+url.PathEscape(id), nil)
}

// Reveal returns the payload of a dead letter. That somebody looked is recorded.
func (c *Client) Reveal(ctx context.Context, id, reason string) (FailurePayload, error) {
	return post[FailurePayload](ctx, c, "/ops/dead-letters/"+url.PathEscape(id)+"/reveal", Reason{reason})
}

// Retry has dead letters tried again.
func (c *Client) Retry(ctx context.Context, s FailureSelection) (Changed, error) {
	return post[Changed](ctx, c, "/ops/dead-letters/retry", s)
}

// Discard settles dead letters without applying them.
func (c *Client) Discard(ctx context.Context, s FailureSelection) (Changed, error) {
	return post[Changed](ctx, c, "/ops/dead-letters/discard", s)
}

// Fix sends a corrected event instead of the one that failed.
func (c *Client) Fix(ctx context.Context, id string, f Fix) (Fixed, error) {
	return post[Fixed](ctx, c, "/ops/dead-letters/"+url.PathEscape(id)+"/fix", f)
}

// PlanReplay tells what a replay would do.
func (c *Client) PlanReplay(ctx context.Context, r ReplayRequest) (ReplayPlan, error) {
	return post[ReplayPlan](ctx, c, "/ops/replays/plan", r)
}

// CreateReplay makes a replay. It does not start it.
func (c *Client) CreateReplay(ctx context.Context, r ReplayRequest) (ReplayPlan, error) {
	return post[ReplayPlan](ctx, c, "/ops/replays", r)
}

// Replays returns the latest replays.
func (c *Client) Replays(ctx context.Context) ([]messaging.Replay, error) {
	p, err := get[Page[messaging.Replay]](ctx, c, "/ops/replays", nil)
	return p.Items, err
}

// Replay returns one replay.
func (c *Client) Replay(ctx context.Context, id uuid.UUID) (messaging.Replay, error) {
	return get[messaging.Replay](ctx, c, "/ops/replays/"+id.String(), nil)
}

// MoveReplay starts, stops, approves or refuses a replay, and returns it.
func (c *Client) MoveReplay(ctx context.Context, id uuid.UUID, move, reason string) (messaging.Replay, error) {
	return post[messaging.Replay](ctx, c, "/ops/replays/"+id.String()+"/"+url.PathEscape(move), Reason{reason})
}

// Evidence returns everything that the service's database knows about a key.
func (c *Client) Evidence(ctx context.Context, key string) (Evidence, error) {
	q := query{}
	q.text("key", key)
	return get[Evidence](ctx, c, "/ops/evidence", q)
}

// Facts returns a page of what must have been published, by time. after is
// Next of the page before.
func (c *Client) Facts(ctx context.Context, w Window) (Page[StagedFact], error) {
	return get[Page[StagedFact]](ctx, c, "/ops/facts", windowQuery(w))
}

// Effects returns a page of what was made because of other services' events.
func (c *Client) Effects(ctx context.Context, w Window) (Page[Effect], error) {
	return get[Page[Effect]](ctx, c, "/ops/effects", windowQuery(w))
}

// EffectsOf returns the effects that these events have had.
func (c *Client) EffectsOf(ctx context.Context, events []EventRef) ([]Effect, error) {
	p, err := post[Page[Effect]](ctx, c, "/ops/effects/lookup", EventRefs{events})
	return p.Items, err
}

// Invariants checks what must hold at any moment, and the outbox since a time.
func (c *Client) Invariants(ctx context.Context, since time.Time) ([]Invariant, error) {
	q := query{}
	q.time("since", since)
	p, err := get[Page[Invariant]](ctx, c, "/ops/invariants", q)
	return p.Items, err
}

// Actions returns a page of what people did, the newest first.
func (c *Client) Actions(ctx context.Context, before string, limit int) (Page[messaging.Action], error) {
	q := query{}
	q.text("before", before)
	q.number("limit", int64(limit))
	return get[Page[messaging.Action]](ctx, c, "/ops/actions", q)
}

// A query holds the parameters that are not empty.
type query url.Values

func (q query) text(name, value string) {
	if value != "" {
		url.Values(q).Set(name, value)
	}
}

func (q query) number(name string, n int64) {
	if n != 0 {
		q.text(name, strconv.FormatInt(n, 10))
	}
}

func (q query) uuid(name string, id uuid.UUID) {
	if id != uuid.Nil {
		q.text(name, id.String())
	}
}

func (q query) time(name string, t time.Time) {
	if !t.IsZero() {
		q.text(name, t.UTC().Format(time.RFC3339Nano))
	}
}

func windowQuery(w Window) query {
	q := query{}
	q.time("since", w.Since)
	q.time("until", w.Until)
	q.text("after", w.After)
	q.number("limit", int64(w.Limit))
	return q
}

func get[T any](ctx context.Context, c *Client, path string, q query) (T, error) {
	target := c.base + path
	if len(q) > 0 {
		target += "?" + url.Values(q).Encode()
	}
	return do[T](ctx, c, http.MethodGet, target, nil)
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("ask %s: %w", c.service, err)
	}
	return do[T](ctx, c, http.MethodPost, c.base+path, encoded)
}

func do[T any](ctx context.Context, c *Client, method, target string, body []byte) (answer T, err error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("ask %s: %w", c.service, withoutURL(err))
	}
	req.Header.Set("Authorization", "Bearer "+string(c.token))
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer, &SilentError{c.service, c.host, withoutURL(err)}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer, &SilentError{c.service, c.host, withoutURL(err)}
	}
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s: %w", c.service, refusal(resp.StatusCode, raw))
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, fmt.Errorf("read the answer of %s: %w", c.service, strictjson.Explain(err))
	}
	return answer, nil
}

// refusal reads a problem document.
func refusal(status int, raw []byte) error {
	var problem struct{ Code, Detail string }
	if json.Unmarshal(raw, &problem) != nil || problem.Code == "" {
		return fmt.Errorf("status %d", status)
	}
	return &httpserver.Error{Status: status, Code: problem.Code, Detail: problem.Detail}
}

// withoutURL leaves the address out of an error: its query may name a customer.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
