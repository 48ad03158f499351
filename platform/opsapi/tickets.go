package opsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"

	"orderpaid/platform/messaging"
)

// A dead letter opens a ticket where people look for their work. The request
// is made after the commit of the failure, from a row, and never holds a
// transaction open; a consumer does not wait for it.
//
// A ticket system is asked once per dead letter, unless it does not answer:
// then up to ticketAttempts times, over about a day. Every request for the same
// dead letter carries the same Idempotency-Key, because an answer that was lost
// is no proof that no ticket was opened.
const (
	ticketPoll     = 2 * time.Second
	ticketTimeout  = 10 * time.Second
	ticketLease    = time.Minute // after which a claimed row may be asked for again: its process has died
	ticketAttempts = 12
	ticketBatch    = 20
)

// Ticket is what is sent, by POST: which dead letter, and no data of it.
type Ticket struct {
	Service string               `json:"service"`
	Title   string               `json:"title"`
	Details messaging.DeadLetter `json:"dead_letter"`
	Show    string               `json:"show"` // the command that shows it
}

// Run exports what is unfinished as metrics until ctx is done, and opens
// tickets for dead letters where the service is given the address of a ticket
// system. Any number of replicas may run it.
func (a *API) Run(ctx context.Context) error {
	observed, err := messaging.ObserveBacklog(otel.GetMeterProvider(), a.cfg.Service, a.history)
	if err != nil {
		return err
	}
	defer func() { _ = observed.Unregister() }() // it never fails
	if a.cfg.Flags.TicketURL == "" {
		<-ctx.Done()
		return nil
	}
	if err := checkURL(string(a.cfg.Flags.TicketURL)); err != nil {
		return fmt.Errorf("--ticket-url: %w", err)
	}
	client := &http.Client{Timeout: ticketTimeout}
	ticker := time.NewTicker(ticketPoll)
	defer ticker.Stop()
	for {
		if err := a.openTickets(ctx, client); err != nil && ctx.Err() == nil {
			a.cfg.Logger.Warn("tickets are held up", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// sqlWantTickets notes dead letters that have no row yet. The unresolved ones
// are few, and the index knows them.
const sqlWantTickets = `
INSERT INTO message_ticket (failure_id)
SELECT f.failure_id FROM message_failure f
 WHERE f.state = 'open' AND NOT EXISTS (SELECT FROM message_ticket t WHERE t.failure_id = f.failure_id)
 ORDER BY f.failure_id LIMIT 1000
ON CONFLICT (failure_id) DO NOTHING`

const sqlClaimTickets = `
WITH due AS MATERIALIZED (
	SELECT failure_id FROM message_ticket
	 WHERE state = 'waiting' AND next_attempt_at <= clock_timestamp()
	 ORDER BY next_attempt_at LIMIT $1
	   FOR UPDATE SKIP LOCKED
)
UPDATE message_ticket t SET attempts = t.attempts + 1, next_attempt_at = clock_timestamp() + $2::interval
  FROM due WHERE t.failure_id = due.failure_id
RETURNING t.failure_id, t.attempts`

type claimedTicket struct {
	FailureID int64
	Attempts  int
}

func (a *API) openTickets(ctx context.Context, client *http.Client) error {
	if _, err := a.cfg.Pool.Exec(ctx, sqlWantTickets); err != nil {
		return fmt.Errorf("look for dead letters: %w", err)
	}
	rows, err := a.cfg.Pool.Query(ctx, sqlClaimTickets, ticketBatch, ticketLease)
	if err != nil {
		return fmt.Errorf("claim tickets: %w", err)
	}
	claimed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimedTicket])
	if err != nil {
		return fmt.Errorf("claim tickets: %w", err)
	}
	for _, t := range claimed {
		outcome := a.openTicket(ctx, client, t.FailureID)
		if ctx.Err() != nil {
			return ctx.Err() // the claim runs out, and the same request is made again
		}
		if err := settleTicket(ctx, a.cfg.Pool, t, outcome); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) openTicket(ctx context.Context, client *http.Client, id int64) error {
	list, err := a.desk.List(ctx, messaging.FailureFilter{IDs: []int64{id}})
	if err != nil || len(list) == 0 {
		return err
	}
	letter := list[0]
	body, err := json.Marshal(Ticket{
		Service: a.cfg.Service, Details: letter,
		Title: fmt.Sprintf("%s cannot apply %s: %s", letter.Consumer, letter.EventType, letter.ErrorCode),
		Show:  fmt.Sprintf("shopctl dead-letters show %s/%d", a.cfg.Service, id),
	})
	if err != nil {
		return fmt.Errorf("encode ticket: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(a.cfg.Flags.TicketURL), bytes.NewReader(body))
	if err != nil {
		return withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("dead-letter-%s-%d", a.cfg.Service, id))
	resp, err := client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

const sqlSettleTicket = `
UPDATE message_ticket SET state = $2, last_error = $3, opened_at = CASE WHEN $2 = 'opened' THEN clock_timestamp() END,
	next_attempt_at = clock_timestamp() + $4::interval
 WHERE failure_id = $1 AND state = 'waiting'`

// settleTicket notes how a request ended. The delay doubles from a few seconds
// to some hours.
func settleTicket(ctx context.Context, pool *pgxpool.Pool, t claimedTicket, outcome error) error {
	state, text, delay := "opened", "", time.Duration(0)
	if outcome != nil {
		state, text, delay = "waiting", outcome.Error(), 10*time.Second<<min(t.Attempts, ticketAttempts)
		if t.Attempts >= ticketAttempts {
			state = "gave_up"
		}
	}
	if _, err := pool.Exec(ctx, sqlSettleTicket, t.FailureID, state, text, delay); err != nil {
		return fmt.Errorf("settle ticket: %w", err)
	}
	return nil
}
