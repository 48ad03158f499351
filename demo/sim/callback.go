package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// An Announcement says how the provider announces a payment. The zero value
// is a provider on a good day: one callback, at once, well signed.
type Announcement struct {
	Copies    int    `json:"copies,omitempty"`    // how many at the same time. Defaults to 1
	FreshIDs  bool   `json:"fresh_ids,omitempty"` // every copy under a webhook-id of its own
	DelayMS   int    `json:"delay_ms,omitempty"`  // before the first attempt
	JitterMS  int    `json:"jitter_ms,omitempty"` // up to this much more, drawn for each copy: they overtake each other
	Signature string `json:"signature,omitempty"` // good, rotated, bad, missing or stale. Defaults to good
}

// The signatures that a callback can carry. A shop must accept the first two.
const (
	signedGood    = "good"
	signedRotated = "rotated" // two signatures, the first by a key that is gone
	signedBad     = "bad"     // by another key
	signedMissing = "missing" // no signature at all
	signedStale   = "stale"   // right, but ten minutes old
)

const (
	maxCopies      = 100
	maxOutstanding = 5_000 // callbacks that wait for their time or for an answer
	maxInFlight    = 64    // requests at the same time
	maxAttempts    = 8     // of one callback; of a forged one only one, forgers do not wait
	firstRetry     = 200 * time.Millisecond
	lastRetry      = 10 * time.Second
	answerTimeout  = 10 * time.Second
)

var errBusy = errors.New("too many callbacks are outstanding")

func (a *Announcement) complete() error {
	if a.Copies == 0 {
		a.Copies = 1
	}
	if a.Signature == "" {
		a.Signature = signedGood
	}
	switch {
	case a.Copies < 0 || a.Copies > maxCopies:
		return fmt.Errorf("copies must be between 1 and %d", maxCopies)
	case a.DelayMS < 0 || a.JitterMS < 0 || int64(a.DelayMS)+int64(a.JitterMS) > maxDelay.Milliseconds():
		return fmt.Errorf("delay_ms and jitter_ms must be between 0 and %d together", maxDelay.Milliseconds())
	case !slices.Contains([]string{signedGood, signedRotated, signedBad, signedMissing, signedStale}, a.Signature):
		return fmt.Errorf("signature %q is none of good, rotated, bad, missing, stale", a.Signature)
	}
	return nil
}

func (a *Announcement) forged() bool {
	return a.Signature != signedGood && a.Signature != signedRotated
}

// A job is one callback to be made.
type job struct {
	payment   *Payment
	index     int // in payment.Callbacks
	webhookID string
	body      []byte
	delay     time.Duration
	signature string
	attempts  int
}

// announce hands the callbacks to run, and returns the payment as it is then.
func (p *provider) announce(ctx context.Context, payment *Payment, how Announcement) (Payment, error) {
	body, err := payment.body()
	if err != nil {
		return Payment{}, fmt.Errorf("announce %s: %w", payment.id(), err)
	}
	id := newID("msg_")
	for range how.Copies {
		if how.FreshIDs {
			id = newID("msg_")
		}
		j := job{payment: payment, webhookID: id, body: body, signature: how.Signature, attempts: maxAttempts}
		j.delay = time.Duration(how.DelayMS+rand.IntN(how.JitterMS+1)) * time.Millisecond
		if how.forged() {
			j.attempts = 1
		}
		p.mu.Lock()
		j.index = len(payment.Callbacks)
		payment.Callbacks = append(payment.Callbacks, Callback{WebhookID: id})
		p.mu.Unlock()
		select {
		case p.queue <- j:
		case <-ctx.Done():
			return Payment{}, fmt.Errorf("announce %s: %w", payment.id(), errBusy)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return payment.clone(), nil
}

// run makes callbacks until ctx is done. Those that wait for their next
// attempt then are given up.
func (p *provider) run(ctx context.Context) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxInFlight
	defer transport.CloseIdleConnections()
	caller := &caller{
		provider: p,
		client:   &http.Client{Transport: transport, Timeout: answerTimeout},
		inFlight: make(chan struct{}, maxInFlight),
	}
	var outstanding errgroup.Group
	outstanding.SetLimit(maxOutstanding)
	for {
		select {
		case <-ctx.Done():
			return outstanding.Wait()
		case j := <-p.queue:
			outstanding.Go(func() error {
				caller.deliver(ctx, j)
				return nil
			})
		}
	}
}

// A caller makes the requests of a provider.
type caller struct {
	*provider
	client   *http.Client
	inFlight chan struct{} // one element for each request on its way
}

// deliver repeats the callback until it is answered with 2xx, or too often.
func (c *caller) deliver(ctx context.Context, j job) {
	if !wait(ctx, j.delay) {
		return
	}
	for attempt := 1; attempt <= j.attempts; attempt++ {
		status, err := c.attempt(ctx, j)
		done := status/100 == 2
		c.note(j, Callback{j.webhookID, attempt, status, done, !done && attempt == j.attempts})
		if done {
			return
		}
		slog.DebugContext(ctx, "callback not accepted", "webhook_id", j.webhookID, "attempt", attempt, "status", status, "error", err)
		if attempt == j.attempts || !wait(ctx, backoff(attempt)) {
			return
		}
	}
}

// attempt makes one request and returns the status of the answer, or an error
// if there was none: the shop may have acted on it, or not.
func (c *caller) attempt(ctx context.Context, j job) (status int, err error) {
	c.inFlight <- struct{}{}
	defer func() { <-c.inFlight }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(j.body))
	if err != nil {
		return 0, err
	}
	c.sign(req, j)
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // read, so that the connection can be used again
	return resp.StatusCode, err
}

func (c *caller) sign(req *http.Request, j job) {
	at := time.Now()
	if j.signature == signedStale {
		at = at.Add(-10 * time.Minute)
	}
	signature := c.signer.sign(j.webhookID, at, j.body)
	other := signer{key: bytes.Repeat([]byte{0x5a}, 32)}.sign(j.webhookID, at, j.body)
	switch j.signature {
	case signedBad:
		signature = other
	case signedRotated:
		signature = other + " " + signature
	}
	// Lower case on the wire, as the specification writes them.
	req.Header["content-type"] = []string{"application/json"}
	req.Header["webhook-id"] = []string{j.webhookID}
	req.Header["webhook-timestamp"] = []string{strconv.FormatInt(at.Unix(), 10)}
	if j.signature != signedMissing {
		req.Header["webhook-signature"] = []string{signature}
	}
}

// note records how a callback stands.
func (p *provider) note(j job, c Callback) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.payment.Callbacks[j.index] = c
}

// backoff returns how long to wait after an attempt: half of it certain, half
// at random, so that many callbacks to a shop that was down do not all return
// together.
func backoff(attempt int) time.Duration {
	d := min(firstRetry<<(attempt-1), lastRetry)
	return d/2 + rand.N(d/2)
}

// wait reports whether d has passed; false means that ctx is done.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
