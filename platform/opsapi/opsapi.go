package opsapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/postgres"
	"orderpaid/platform/process"
	"orderpaid/platform/strictjson"
)

// Config says what a service shows. Service, Pool and Flags are required.
type Config struct {
	// Service is the name under which others know it: "points".
	Service string

	// Pool is the service's database. It should be one of its own, so that
	// operators neither wait for customers nor make them wait.
	Pool *pgxpool.Pool

	// Flags are who may ask, and what the service was told about others.
	Flags Flags

	// Consumers are those of the service, for replays and for what is shown
	// about them.
	Consumers []*messaging.Consumer

	// Broker reads the stream, for replays from it. Without it they are refused.
	Broker *natsbroker.Broker

	// Own is what the service knows beside its messaging.
	Own Own

	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Own is what a service adds of its own. Each function may be nil.
type Own struct {
	// Evidence tells what the service's own tables say about a key: a business
	// key such as an order id, a user's id, or the id of one of its aggregates.
	// Who knows nothing returns nothing.
	Evidence func(ctx context.Context, key string) (OwnEvidence, error)

	// Facts returns the changes that the business tables hold in the window,
	// each of which must have an event; by time, then by cursor.
	Facts func(ctx context.Context, w Window) ([]Fact, error)

	// Effects returns what was made in the window because of other services'
	// events; by time, then by cursor.
	Effects func(ctx context.Context, w Window) ([]Effect, error)

	// EffectsOf returns the effects that these events have had, each with the
	// event's id, and none for those without.
	EffectsOf func(ctx context.Context, events []EventRef) ([]Effect, error)

	// Invariants checks what must hold in the business tables at any moment.
	Invariants func(ctx context.Context) ([]Invariant, error)

	// Unfinished counts what the service has begun and not ended beside its
	// messaging, as far as [MaxUnfinished]: who would take it away must know
	// that there is some, and not how much.
	Unfinished func(ctx context.Context) (int64, error)

	// Exceptions are what came from outside and waits for a person.
	Exceptions ExceptionDesk

	// Doubts are effects outside of which nobody knows whether they happened.
	Doubts DoubtDesk
}

// A Window is a part of a list by time. Since is inclusive, Until is not.
type Window struct {
	Since, Until time.Time
	After        string // the cursor of the last entry of the page before; empty for the first page
	Limit        int
}

// poolConns is enough for a person, the console and a reconciliation at the
// same time.
const poolConns = 3

// OpenPool opens the pool for the ops API of a service. The caller closes it.
func OpenPool(ctx context.Context, service string, databaseURL process.Secret) (*pgxpool.Pool, error) {
	pool, err := postgres.Open(ctx, string(databaseURL), postgres.Config{MaxConns: poolConns, ApplicationName: service + " ops"})
	if err != nil {
		return nil, fmt.Errorf("%w; check that PostgreSQL runs and that --database-url is right", err)
	}
	return pool, nil
}

// API is a service's ops API.
type API struct {
	cfg       Config
	tokens    Tokens
	refusals  refusals
	peers     map[string]*Client
	keys      *messaging.PayloadKeys
	history   *messaging.History
	desk      *messaging.DeadLetters
	replays   *messaging.Replays
	consumers map[string]*messaging.Consumer
}

// New returns the API of a service. Settings that cannot be used are errors: a
// service must not start with an API that is open to nobody it was meant for.
func New(cfg Config) (*API, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	tokens, err := loadTokens(cfg.Flags.OpsTokens, cfg.Flags.OpsTokensFile)
	if err != nil {
		return nil, err
	}
	keys, err := cfg.Flags.keys()
	if err != nil {
		return nil, err
	}
	if len(tokens.bearers) == 0 {
		cfg.Logger.Warn("no tokens are configured: nobody may use the ops API", "flag", "--ops-tokens")
	}
	a := &API{cfg: cfg, tokens: tokens, keys: keys, peers: map[string]*Client{}, consumers: map[string]*messaging.Consumer{},
		refusals: refusals{at: map[string]time.Time{}, leftOut: map[string]int{}},
		history:  messaging.NewHistory(cfg.Pool), desk: messaging.NewDeadLetters(cfg.Pool, keys), replays: messaging.NewReplays(cfg.Pool)}
	for name := range cfg.Flags.OpsPeers {
		if a.peers[name], err = cfg.Flags.peer(name); err != nil {
			return nil, err
		}
	}
	for _, c := range cfg.Consumers {
		a.consumers[c.Subscription().Durable] = c
	}
	return a, nil
}

// Mount adds the API's routes; give it to [httpserver.RunOps].
func (a *API) Mount(r chi.Router) {
	r.Route("/ops", func(r chi.Router) {
		r.Use(a.authenticate)
		r.Get("/outbox", handle(a.outbox)) // peers too: they choose what to ask for
		r.Group(func(r chi.Router) {
			r.Use(a.need(Peer))
			r.Get("/outbox/between", handle(a.between))
			r.Post("/outbox/payloads", handle(a.payloads))
		})
		r.Group(func(r chi.Router) {
			r.Use(a.need(Viewer))
			a.mountViews(r)
			r.With(a.need(Operator)).Group(a.mountActions)
			r.With(a.need(Approver)).Group(func(r chi.Router) {
				r.Post("/replays/{id}/approve", handle(a.moveReplay(a.replays.Approve)))
				r.Post("/replays/{id}/refuse", handle(a.moveReplay(a.replays.Refuse)))
			})
		})
	})
}

func (a *API) mountViews(r chi.Router) {
	r.Get("/service", handle(a.service))
	r.Get("/backlog", handle(a.backlog))
	r.Get("/drained", handle(a.drained))
	r.Post("/outbox/lookup", handle(a.outboxLookup))
	r.Get("/inbox", handle(a.inbox))
	r.Post("/inbox/lookup", handle(a.inboxLookup))
	r.Get("/dead-letters", handle(a.deadLetters))
	r.Get("/dead-letters/groups", handle(a.deadLetterGroups))
	r.Get("/dead-letters/{id}", handle(a.deadLetter))
	r.Get("/exceptions", handle(a.exceptions))
	r.Get("/exceptions/{id}", handle(a.exception))
	r.Get("/doubts", handle(a.doubts))
	r.Get("/replays", handle(a.listReplays))
	r.Get("/replays/{id}", handle(a.showReplay))
	r.Post("/replays/plan", handle(a.planReplay))
	r.Get("/evidence", handle(a.evidence))
	r.Get("/facts", handle(a.facts))
	r.Get("/effects", handle(a.effects))
	r.Post("/effects/lookup", handle(a.effectsLookup))
	r.Get("/invariants", handle(a.invariants))
	r.Get("/actions", handle(a.actions))
}

func (a *API) mountActions(r chi.Router) {
	r.Post("/outbox/republish", handle(a.republish))
	r.Post("/outbox/release", handle(a.release))
	r.Post("/dead-letters/{id}/reveal", handle(a.revealDeadLetter))
	r.Post("/dead-letters/retry", handle(a.retryDeadLetters))
	r.Post("/dead-letters/discard", handle(a.discardDeadLetters))
	r.Post("/dead-letters/{id}/fix", handle(a.fixDeadLetter))
	r.Post("/exceptions/settle", handle(a.settleExceptions))
	r.Post("/doubts/settle", handle(a.settleDoubt))
	r.Post("/replays", handle(a.createReplay))
	r.Post("/replays/{id}/start", handle(a.moveReplay(a.replays.Start)))
	r.Post("/replays/{id}/stop", handle(a.moveReplay(a.replays.Stop)))
}

// handle makes a handler of a function that returns what to answer.
func handle(fn func(w http.ResponseWriter, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := fn(w, r)
		if err != nil {
			httpserver.WriteError(w, r, translate(err))
			return
		}
		httpserver.WriteJSON(w, http.StatusOK, answer)
	}
}

// translate decides what messaging's refusals look like from outside.
func translate(err error) error {
	for _, known := range []struct {
		is     error
		status int
		code   string
	}{
		{messaging.ErrNoFailure, http.StatusNotFound, "no_dead_letter"},
		{ErrNoException, http.StatusNotFound, "no_exception"},
		{ErrNoDoubt, http.StatusNotFound, "no_doubt"},
		{messaging.ErrNoReplay, http.StatusNotFound, "no_replay"},
		{messaging.ErrSettled, http.StatusConflict, "settled"},
		{messaging.ErrUnreadable, http.StatusUnprocessableEntity, "unreadable_event"},
		{messaging.ErrOtherAggregate, http.StatusUnprocessableEntity, "other_aggregate"},
		{messaging.ErrReplayState, http.StatusConflict, "replay_state"},
		{messaging.ErrOwnApproval, http.StatusForbidden, "own_approval"},
		{messaging.ErrErased, http.StatusGone, "payload_gone"},
		{messaging.ErrTooOld, http.StatusUnprocessableEntity, "too_old"},
		{messaging.ErrEverything, http.StatusBadRequest, "filter_missing"},
		{messaging.ErrNoReason, http.StatusBadRequest, "reason_missing"},
	} {
		if errors.Is(err, known.is) {
			return &httpserver.Error{Status: known.status, Code: known.code, Detail: known.is.Error()}
		}
	}
	return err
}

func badRequest(code, format string, args ...any) error {
	return &httpserver.Error{Status: http.StatusBadRequest, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// ErrBadCursor: a [Window]'s After is not a cursor of its list.
var ErrBadCursor error = &httpserver.Error{Status: http.StatusBadRequest, Code: "bad_cursor",
	Detail: "this is not a cursor of this list; start again without one"}

// pageSize is how many entries a list may have; lists for programs are longer
// than those for customers.
const (
	defaultPage = 100
	maxPage     = 1000
)

// A params reads the parameters of a query and remembers the first that is
// wrong.
type params struct {
	r     *http.Request
	names []string // of the parameters that were read
	err   error
}

// end returns what was wrong. After all parameters have been read, it refuses
// what is left: a filter whose name is misspelt would list what it was to hide.
func (p *params) end() error {
	if p.err == nil {
		_, p.err = httpserver.ReadQuery(p.r, p.names...)
	}
	return p.err
}

// text returns a parameter that the database can be asked about: it stands once
// and is UTF-8 without U+0000, in a query that can be read at all.
func (p *params) text(name string) string {
	p.names = append(p.names, name)
	query, err := url.ParseQuery(p.r.URL.RawQuery)
	given := query.Get(name)
	switch {
	case p.err != nil:
	case err != nil:
		p.err = badRequest("bad_query_string", "the query string is not properly escaped")
	case len(query[name]) > 1:
		p.err = badRequest("repeated_parameter", "%s may be given once", name)
	case !httpserver.IsText(given):
		p.err = badRequest("bad_text", "%s must be UTF-8 text without U+0000", name)
	}
	return given
}

// oneOf returns a parameter that has these values and no others; it may be
// absent. To ask for a value that does not exist would find nothing, and look as
// if nothing were wrong.
func (p *params) oneOf(name string, values ...string) string {
	given := p.text(name)
	if given != "" && !slices.Contains(values, given) && p.err == nil {
		p.err = badRequest("bad_"+name, "%s is one of %s", name, strings.Join(values, ", "))
	}
	return given
}

func (p *params) time(name string, fallback time.Time) time.Time {
	given := p.text(name)
	if given == "" {
		return fallback
	}
	t, err := time.Parse(time.RFC3339Nano, given)
	if (err != nil || !strictjson.Storable(t)) && p.err == nil {
		p.err = badRequest("bad_time", "%s must be a time such as 2026-03-01T14:02:00Z", name)
	}
	return t
}

func (p *params) uuid(name string) uuid.UUID {
	given := p.text(name)
	if given == "" {
		return uuid.Nil
	}
	id, err := uuid.Parse(given)
	if err != nil && p.err == nil {
		p.err = badRequest("bad_id", "%s must be a UUID", name)
	}
	return id
}

func (p *params) int(name string, fallback int64) int64 {
	given := p.text(name)
	if given == "" {
		return fallback
	}
	n, err := parseID(given)
	if err != nil && p.err == nil {
		p.err = badRequest("bad_number", "%s must be a whole number that is not negative", name)
	}
	return n
}

func (p *params) limit() int {
	given := p.text("limit")
	if given == "" {
		return defaultPage
	}
	n, err := parseID(given)
	if (err != nil || n < 1 || n > maxPage) && p.err == nil {
		p.err = badRequest("bad_limit", "limit must be a whole number from 1 to %d", maxPage)
	}
	return int(n)
}
