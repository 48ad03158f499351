package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What a journal does not name is looked at too: an effect that nobody has
// asked for is as wrong as one that is missing.

// Each returns ids of orders. A paid order alone accounts for points and mails,
// and any order for a document.
const (
	sqlOrdersWithPoints   = `SELECT DISTINCT order_id FROM points_entry`
	sqlOrdersWithMails    = `SELECT DISTINCT order_id FROM delivery_task`
	sqlOrdersWithDocument = `SELECT DISTINCT order_id FROM order_document`
	sqlAllOrders          = `SELECT order_id, state = 'PAID' FROM orders`

	// An order has one event for each of its versions, for as long as the
	// outbox keeps them. Both tables are read once: asked for each order, a
	// database that has not counted its rows yet would read the outbox each time.
	sqlUnstatedOrders = `
SELECT o.order_id FROM orders o
  LEFT JOIN (SELECT aggregate_id, count(*) AS events FROM message_outbox WHERE aggregate_type = 'order' GROUP BY aggregate_id) m
         ON m.aggregate_id = o.order_id
 WHERE o.created_at > now() - interval '30 days' AND coalesce(m.events, 0) <> o.version`
)

// strays returns rows that no order accounts for. Effects are read before
// orders: an order that is paid meanwhile explains more, never less.
func (s sessions) strays(ctx context.Context) (strays []string, err error) {
	effects := map[string][]string{}
	for _, q := range []struct{ service, sql string }{{"points", sqlOrdersWithPoints}, {"notify", sqlOrdersWithMails}, {"search", sqlOrdersWithDocument}} {
		rows, err := s[q.service].Query(ctx, q.sql)
		if err == nil {
			effects[q.service], err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return nil, fmt.Errorf("look for strays in %s: %w", q.service, err)
		}
	}
	paid := map[string]bool{}
	rows, err := s["order"].Query(ctx, sqlAllOrders)
	if err != nil {
		return nil, fmt.Errorf("look for strays: %w", err)
	}
	var id string
	var isPaid bool
	if _, err := pgx.ForEachRow(rows, []any{&id, &isPaid}, func() error { paid[id] = isPaid; return nil }); err != nil {
		return nil, fmt.Errorf("look for strays: %w", err)
	}
	unstated, err := s["order"].Query(ctx, sqlUnstatedOrders)
	if err != nil {
		return nil, fmt.Errorf("look for strays in order: %w", err)
	}
	ids, err := pgx.CollectRows(unstated, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for strays in order: %w", err)
	}
	for _, id := range ids {
		strays = append(strays, "order "+id+" has other versions than events")
	}
	return append(strays, unaccounted(effects, paid)...), nil
}

// unaccounted compares effects with orders; paid has every order there is.
func unaccounted(effects map[string][]string, paid map[string]bool) (strays []string) {
	for _, service := range services {
		for _, id := range effects[service] {
			isPaid, known := paid[id]
			if !known || !isPaid && service != "search" {
				strays = append(strays, service+" "+id)
			}
		}
	}
	return strays
}

// A fact of an outbox that no relay waits to publish, whose outbox it is, and
// what the outbox has as evidence that the broker stored it.
type fact struct {
	service   string
	id        uuid.UUID
	position  int64 // on the stream; 0 without evidence
	published time.Time
}

// What waits for a relay is not lost, and is looked at elsewhere.
const sqlRelayedFacts = `
SELECT o.event_id, coalesce(b.stream_seq, 0), coalesce(b.published_at, now()) FROM message_outbox o
  LEFT JOIN message_outbox_publication b ON b.event_id = o.event_id
 WHERE NOT EXISTS (SELECT FROM message_outbox_pending p WHERE p.shard = o.shard AND p.id = o.id)
   AND NOT EXISTS (SELECT FROM message_outbox_held h WHERE h.shard = o.shard AND h.id = o.id)`

// relayedFacts returns the events of all databases that must be on the stream.
func (s sessions) relayedFacts(ctx context.Context) (facts []fact, err error) {
	for _, service := range services {
		rows, err := s[service].Query(ctx, sqlRelayedFacts)
		if err != nil {
			return nil, fmt.Errorf("read the outbox of %s: %w", service, err)
		}
		f := fact{service: service}
		if _, err := pgx.ForEachRow(rows, []any{&f.id, &f.position, &f.published}, func() error {
			facts = append(facts, f)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("read the outbox of %s: %w", service, err)
		}
	}
	return facts, nil
}

// expiryMargin is more than a server takes to drop what is too old, and than
// clocks of one site differ.
const expiryMargin = time.Hour

// expired reports whether the stream may have dropped the fact for its age. A
// folder of an earlier week has many of those.
func (a *StreamAudit) expired(f fact, now time.Time) bool {
	return a.maxAge > 0 && f.position > 0 && uint64(f.position) < a.first && now.Sub(f.published) > a.maxAge-expiryMargin
}

// missing returns the facts that are not on the stream, and those whose
// evidence is absent or names a place where another event is.
func missing(facts []fact, audit *StreamAudit, now time.Time) (lost, unproven []string) {
	for _, f := range facts {
		name := f.service + " " + f.id.String()
		switch {
		case audit.expired(f, now):
		case !audit.Has(f.id):
			lost = append(lost, name)
		case !audit.at(f.id, f.position):
			unproven = append(unproven, fmt.Sprintf("%s at %d", name, f.position))
		}
	}
	return lost, unproven
}

// at reports whether one copy of the event is at the position.
func (a *StreamAudit) at(id uuid.UUID, position int64) bool {
	for _, p := range a.events[id] {
		if int64(p) == position {
			return true
		}
	}
	return false
}
