package console

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/opsapi"
	"orderpaid/platform/process"
)

// A Service keeps the trail and the board, and serves the pages. What the
// pages show of other services it asks them for, each time.
type Service struct {
	pool   *pgxpool.Pool
	broker *natsbroker.Broker

	order, points, notify, search *upstream // what customers use
	sim                           *upstream // the payment provider and the mail server of the demo
	control                       *upstream // the demo's supervisor

	flags  opsapi.Flags              // where the services' ops APIs are
	ops    map[string]*opsapi.Client // … with the console's own token, which may only look
	public bool                      // Live and Why are shown to who has not signed in
	actors []Actor                   // whom a demo lets its visitors act as

	board atomic.Pointer[Board]
	piles atomic.Pointer[[]pile] // what waits for a person
	pages map[string]*pageSet
	done  <-chan struct{} // closed when streams must end

	streams chan struct{} // one element for each that is read
}

// serviceNames are the services in the order in which an event meets them.
var serviceNames = []string{"order", "points", "notify", "search", "console"}

// NewService returns the service on a migrated database.
func NewService(pool *pgxpool.Pool, broker *natsbroker.Broker, cfg Config) (*Service, error) {
	s := &Service{
		pool: pool, broker: broker,
		order:   newUpstream("order", cfg.OrderURL, ""),
		points:  newUpstream("points", cfg.PointsURL, ""),
		notify:  newUpstream("notify", cfg.NotifyURL, ""),
		search:  newUpstream("search", cfg.SearchURL, ""),
		sim:     newUpstream("sim", cfg.SimURL, ""),
		control: newUpstream("demo", cfg.ControlURL, string(cfg.ControlToken)),
		flags:   cfg.Flags, ops: map[string]*opsapi.Client{}, public: cfg.PublicView,
		streams: make(chan struct{}, maxStreams),
	}
	if cfg.TokenURL != "" {
		shared := &login{url: string(cfg.TokenURL), http: &http.Client{Timeout: upstreamTimeout}}
		for _, u := range []*upstream{s.order, s.points, s.notify, s.search} {
			u.login = shared
		}
	}
	for _, name := range serviceNames {
		client, err := s.client(name, cfg.OpsPeerToken)
		if err != nil {
			return nil, err
		}
		s.ops[name] = client
	}
	var err error
	if s.actors, err = parseActors(string(cfg.DemoActors)); err != nil {
		return nil, err
	}
	if s.pages, err = loadPages(); err != nil {
		return nil, err
	}
	s.board.Store(&Board{})
	s.piles.Store(&[]pile{})
	return s, nil
}

// client returns a client of a service's ops API that acts for the bearer of a
// token.
func (s *Service) client(service string, token process.Secret) (*opsapi.Client, error) {
	base, known := s.flags.OpsPeers[service]
	if !known {
		return nil, fmt.Errorf("the ops API of %s is not known: --ops-peer %s=URL", service, service)
	}
	return opsapi.NewClient(service, base, token)
}

// watchBoard keeps the board up to date until ctx is done. It is computed once
// a second for everybody, however many look.
func (s *Service) watchBoard(ctx context.Context) error {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for n := 0; ; n++ {
		s.board.Store(s.readBoard(ctx, s.board.Load(), n%5 == 0))
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
	}
}
