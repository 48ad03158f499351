package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// LoadConfig says what is asked of the shop.
type LoadConfig struct {
	OrderURL      string // base URL of the order service. Required.
	IssuerURL     string // who gives customers their tokens, the sim; empty for a shop that asks for none
	WebhookSecret string // what the payment provider signs with: whsec_ and base64. Required.
	Journal       string // the file to write the answers to; must not exist. Required.

	Run     string // part of every key and id, so that no two loads meet. Defaults to the time of the start.
	Orders  int    // how many. Defaults to 500.
	Users   int    // how many customers place them, u-0001 and so on. Defaults to 40.
	Workers int    // how many orders are in work at once. Defaults to 8.
	Rate    int    // orders begun in a second. Defaults to as many as the shop takes.
	Seed    uint64 // of everything that is drawn. Defaults to 1.

	Enough   <-chan struct{} // closed when no further order shall begin. Defaults to never.
	Progress func(done int)  // called after each order, from many goroutines. Defaults to nothing.

	catalogue []product // what can be bought. Defaults to asking the shop.
}

func (c LoadConfig) withDefaults() (LoadConfig, error) {
	if c.OrderURL == "" || c.WebhookSecret == "" || c.Journal == "" {
		return c, errors.New("load: order URL, webhook secret and journal are required")
	}
	if c.Run == "" {
		c.Run = now().Format("20060102T150405") + "-" + strings.ToLower(rand.Text()[:4])
	}
	for _, d := range []struct {
		value    *int
		standard int
	}{{&c.Orders, 500}, {&c.Users, 40}, {&c.Workers, 8}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if c.Orders < 0 || c.Users < 0 || c.Workers < 0 || c.Rate < 0 {
		return c, errors.New("load: orders, users, workers and rate must not be negative")
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.Progress == nil {
		c.Progress = func(int) {}
	}
	return c, nil
}

// Load places orders and lets them meet their fates: paid, refunded,
// cancelled, or left alone, with callbacks that come more than once, at the
// same time, and out of order. It returns when every request has a definite
// answer; all answers are in the journal.
func Load(ctx context.Context, cfg LoadConfig) (err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return err
	}
	c, err := newClient(cfg.OrderURL, cfg.IssuerURL, cfg.WebhookSecret)
	if err != nil {
		return err
	}
	defer c.close()
	catalogue := cfg.catalogue
	if len(catalogue) == 0 {
		if catalogue, err = c.catalogue(ctx); err != nil {
			return err
		}
	}
	if c.journal, err = CreateJournal(cfg.Journal); err != nil { // not before: without a shop there is nothing to keep
		return err
	}
	defer func() { err = errors.Join(err, c.journal.Close()) }()

	g, ctx := errgroup.WithContext(ctx)
	numbers := make(chan int)
	g.Go(func() error {
		defer close(numbers)
		return paced(ctx, cfg, numbers)
	})
	var done atomic.Int64
	for range cfg.Workers {
		g.Go(func() error {
			for n := range numbers {
				if err := c.live(ctx, newPlan(cfg, n, catalogue)); err != nil {
					return err
				}
				cfg.Progress(int(done.Add(1)))
			}
			return nil
		})
	}
	return g.Wait()
}

// steadyOrders bounds the journal of a steady load.
const steadyOrders = 1000

// steady places orders until ctx ends or something fails. Nobody compares, so
// the journal begins anew every 1000 orders, and the orders of cfg are ignored.
func steady(ctx context.Context, cfg LoadConfig) error {
	progress := cfg.Progress
	if progress == nil {
		progress = func(int) {}
	}
	c, err := newClient(cfg.OrderURL, cfg.IssuerURL, cfg.WebhookSecret)
	if err != nil {
		return err
	}
	cfg.catalogue, err = c.catalogue(ctx) // once: a later try may meet a shop that somebody has just broken
	c.close()
	if err != nil {
		return err
	}
	cfg.Orders = steadyOrders
	for before := 0; ; before += steadyOrders {
		if err := os.Remove(cfg.Journal); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("steady load: %w", err)
		}
		cfg.Progress = func(done int) { progress(before + done) }
		if err := Load(ctx, cfg); err != nil {
			return err
		}
		cfg.Seed++
	}
}

// paced sends the numbers of the orders, from 1, each not before its time.
// What the shop holds up is late, and made up for: customers do not go away
// because a server does.
func paced(ctx context.Context, cfg LoadConfig, numbers chan<- int) error {
	started := time.Now()
	for n := 1; n <= cfg.Orders; n++ {
		var wait time.Duration
		if cfg.Rate > 0 {
			wait = time.Until(started.Add(time.Duration(n) * time.Second / time.Duration(cfg.Rate)))
		}
		select {
		case <-time.After(wait):
		case <-cfg.Enough:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case numbers <- n:
		case <-cfg.Enough:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// live takes one order through its life. What the shop refuses is an answer
// like another: the journal has it, and the check judges it.
func (c *client) live(ctx context.Context, p plan) error {
	created, total, err := c.create(ctx, p)
	if err != nil || created.Outcome != Accepted {
		return err
	}
	if p.rand.IntN(20) == 0 { // an impatient second click
		if _, _, err := c.create(ctx, p); err != nil {
			return err
		}
	}
	switch p.fate {
	case fateUnpaid:
		return nil
	case fateCancelled:
		_, err := c.cancel(ctx, p, created.OrderID)
		return err
	case fateRaced:
		return c.race(ctx, p, created.OrderID, total)
	case fateWrongAmount:
		wrong := callback{webhookID: p.key("wrong-hook"), op: OpPay, orderID: created.OrderID,
			paymentID: p.key("wrong"), amount: total, at: now()}
		wrong.amount.Amount++
		if _, err := c.announce(ctx, p, wrong); err != nil {
			return err
		}
	}
	return c.announceAll(ctx, p, p.callbacks(created.OrderID, total))
}

// race cancels the order while its payment is announced.
func (c *client) race(ctx context.Context, p plan, orderID string, total money) error {
	payment := callback{webhookID: p.key("pay-hook1"), op: OpPay, orderID: orderID, paymentID: p.key("pay"), amount: total, at: now()}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { _, err := c.cancel(ctx, p, orderID); return err })
	g.Go(func() error { _, err := c.announce(ctx, p, payment); return err })
	return g.Wait()
}

// announceAll delivers callbacks one after the other, or, for every second
// order, all at once.
func (c *client) announceAll(ctx context.Context, p plan, list []callback) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(1 + (p.number%2)*len(list))
	for _, cb := range list {
		g.Go(func() error { _, err := c.announce(ctx, p, cb); return err })
	}
	return g.Wait()
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
