package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// show lets a person watch: it says what to try, places the orders at an easy
// pace, and keeps a live line until it is asked to stop.
func (r *run) show(ctx context.Context) error {
	if err := r.welcome(ctx); err != nil {
		return err
	}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return r.load(ctx, r.loadConfig(easyRate, func(n int) { done.Store(int64(n)) }))
	})
	g.Go(func() error { return r.pulse(ctx, &done) })
	return g.Wait()
}

// pulse keeps the live line until ctx is done. That a database does not answer
// for a while is a part of what there is to see, and not the end.
func (r *run) pulse(ctx context.Context, done *atomic.Int64) error {
	var open sessions
	defer func() { open.close() }()
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		var err error
		if open == nil {
			open, err = r.stack.Site().openSessions(ctx)
		}
		state := "the databases do not answer"
		if err == nil {
			var p pulse
			if p, err = readPulse(ctx, open, r.stack.URL["sim"]); err == nil {
				state = p.String()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err() // asked to stop: nobody did not answer
		}
		if err != nil {
			open.close()
			open = nil
		}
		r.screen.show(fmt.Sprintf("%s · %s", r.progress(int(done.Load())), state))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
		}
	}
}

// easyRate is how many orders a second a person can watch, and a laptop does
// not notice.
const easyRate = 5

// progress says how far the load is. A steady one has no end that a bar could
// run to.
func (r *run) progress(done int) string {
	if r.Orders == endless {
		return fmt.Sprintf("%d orders", done)
	}
	return fmt.Sprintf("%s %d/%d orders", bar(done, r.Orders), done, r.Orders)
}

// load places the orders and, if asked to, kills processes meanwhile.
func (r *run) load(ctx context.Context, cfg LoadConfig) error {
	if r.Chaos > 0 {
		cfg.Workers = chaosWorkers
		return r.loadUnderChaos(ctx, cfg)
	}
	place, way := Load, r.Orders
	if r.Orders == endless {
		place, way = steady, 150 // half a minute: somebody waits for it
	}
	if !r.Kill {
		return place(ctx, cfg)
	}
	// A third and a half of the way, whatever the pace.
	victims := map[int]string{max(1, way/3): Relay(1), max(2, way/2): "points"}
	progress := cfg.Progress
	var mu sync.Mutex
	failed := map[int]error{}
	for at, victim := range victims {
		failed[at] = fmt.Errorf("%s was not killed: the load did not come so far", victim)
	}
	cfg.Progress = func(done int) {
		if victim := victims[done]; victim != "" {
			r.screen.printf("  ! kill -9 %s (process %d)", victim, r.stack.PID(victim))
			mu.Lock()
			failed[done] = r.stack.Kill(victim)
			mu.Unlock()
		}
		progress(done)
	}
	// A check whose kills have failed has not checked what it says.
	err := place(ctx, cfg)
	return errors.Join(append(slices.Collect(maps.Values(failed)), err)...)
}

// welcome places an order that waits for the reader's payment, so that every
// line below can be copied as it is.
func (r *run) welcome(ctx context.Context) error {
	s := r.stack
	var products struct {
		Items []product `json:"items"`
	}
	if err := getJSON(ctx, s.URL["order"]+"/v1/products?limit=1", &products); err != nil {
		return err
	}
	if len(products.Items) == 0 {
		return errors.New("the catalogue is empty")
	}
	sku := products.Items[0].SKU
	id, total, err := placeOne(ctx, s.URL["order"], sku)
	if err != nil {
		return err
	}
	r.screen.printf(`
  Open %[13]s and buy something, break something, and ask why.

  orders  %[1]s/v1/orders/%[4]s
  points  %[2]s/v1/users/you/points
  search  %[3]s/v1/orders/search?user_id=you
  mails   %[5]s/mails?order=%[4]s
  logs    %[6]s/log

Order %[4]s is yours and waits for its payment. In another terminal:

  # pay it: the provider calls back twenty times at once, under twenty ids
  curl -s %[5]s/payments -H 'Content-Type: application/json' -d '{"order_id":"%[4]s","amount":%[7]d,"currency":"%[8]s","exponent":%[9]d,"announce":{"copies":20,"fresh_ids":true}}'
  # one payment, one award, one mail
  curl -s %[1]s/v1/orders/%[4]s
  curl -s %[2]s/v1/users/you/points
  # where are its points? every service is asked
  %[6]s/bin/shopctl why %[4]s
  # another one
  curl -s %[1]s/v1/orders -H 'Content-Type: application/json' -H "Idempotency-Key: yours-$(date +%%s%%N)" -d '{"user_id":"you","currency":"CNY","items":[{"sku":"%[10]s","quantity":2}]}'
  # break something: it comes back, and nothing is lost
  kill -9 %[11]d    # a relay
  kill -9 %[12]d    # the points service
  kill -9 %[14]d    # nats-server
  kill -9 %[15]d    # PostgreSQL
  # have the mail server refuse, and take mail again
  curl -s -X PUT %[5]s/faults -H 'Content-Type: application/json' -d '{"faults":[{"kind":"refuse"}]}'
  curl -s -X DELETE %[5]s/faults
`, s.URL["order"], s.URL["points"], s.URL["search"], id, s.URL["sim"], r.dir,
		total.Amount, total.Currency, total.Exponent, sku, s.PID(Relay(1)), s.PID("points"), s.URL["console"], s.PID("nats-server"), s.postgres.PID())
	return nil
}

func placeOne(ctx context.Context, shop, sku string) (id string, total money, err error) {
	body := fmt.Sprintf(`{"user_id":"you","currency":"CNY","items":[{"sku":%q,"quantity":1}]}`, sku)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, shop+"/v1/orders", bytes.NewReader([]byte(body)))
	if err != nil {
		return "", money{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "welcome-"+now().Format(time.RFC3339Nano))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", money{}, err
	}
	defer resp.Body.Close()
	var order struct {
		OrderID string `json:"order_id"`
		Total   money  `json:"total"`
	}
	if resp.StatusCode != http.StatusCreated {
		return "", money{}, fmt.Errorf("place an order: %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&order)
	return order.OrderID, order.Total, err
}

// A pulse is what the live line shows: of all orders ever, not of one load.
type pulse struct {
	paid, credited, mailed, indexed int64
	doubled                         int64   // effects, not events: a fact that is stated twice harms nobody
	copies                          int64   // of mails under one Message-ID, which docs/02-guarantees.md allows after a crash
	oldest                          float64 // seconds
}

const (
	// Unfinished is an order that was paid and has a follow-up that is not done.
	sqlPulseOrders = `
SELECT count(*),
       (SELECT coalesce(extract(epoch FROM now() - min(since)), 0)::float8 FROM follow_up WHERE state = 'pending')
  FROM orders WHERE state = 'PAID'`
	sqlPulsePoints = `SELECT count(*), count(*) - count(DISTINCT order_id) FROM points_entry WHERE kind = 'award'`
	sqlPulseMails  = `SELECT count(*) - count(DISTINCT order_id) FROM delivery_task`
	sqlPulseSearch = `
SELECT count(*) FROM order_document WHERE slot = (SELECT live_slot FROM search_index) AND state = 'PAID'`
)

func readPulse(ctx context.Context, s sessions, simURL string) (p pulse, err error) {
	var doubledAwards, doubledMails int64
	var mails struct {
		MessageIDs int64 `json:"message_ids"`
		Copies     int64 `json:"copies"`
	}
	err = errors.Join(
		s["order"].QueryRow(ctx, sqlPulseOrders).Scan(&p.paid, &p.oldest),
		s["points"].QueryRow(ctx, sqlPulsePoints).Scan(&p.credited, &doubledAwards),
		s["notify"].QueryRow(ctx, sqlPulseMails).Scan(&doubledMails),
		s["search"].QueryRow(ctx, sqlPulseSearch).Scan(&p.indexed),
		getJSON(ctx, simURL+"/mails/totals", &mails))
	if err != nil {
		return p, fmt.Errorf("read how far everything is: %w", err)
	}
	p.mailed, p.copies, p.doubled = mails.MessageIDs, mails.Copies, doubledAwards+doubledMails
	return p, nil
}

func (p pulse) String() string {
	line := fmt.Sprintf("paid %d · credited %d · mailed %d · indexed %d · duplicated effects %d · oldest unfinished %.1f s",
		p.paid, p.credited, p.mailed, p.indexed, p.doubled, p.oldest)
	if p.copies > 0 {
		line += fmt.Sprintf(" · mails sent again under one Message-ID %d", p.copies)
	}
	return line
}
