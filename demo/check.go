package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Result is one line of the table: what the journal entitles the client to,
// and what was found.
type Result struct {
	Check    string   `json:"check"`
	Expected int64    `json:"expected"`
	Found    int64    `json:"found"`
	OK       bool     `json:"ok"`
	Examples []string `json:"examples,omitempty"` // of what differs
}

// A Report is the outcome of a check.
type Report struct {
	OK      bool          `json:"ok"`
	Results []Result      `json:"results"`
	Notes   []string      `json:"notes"` // what happened on the way and is no difference
	Waited  time.Duration `json:"-"`     // from the end of the load until the databases were as expected
}

// String is the report as a table, with examples under what differs.
func (r *Report) String() string {
	rows := [][]string{{"check", "expected", "found", ""}}
	var examples []string
	for _, result := range r.Results {
		verdict := "ok"
		if !result.OK {
			verdict = "DIFFERS"
			if len(result.Examples) > 0 {
				examples = append(examples, result.Check+": "+strings.Join(result.Examples, "; "))
			}
		}
		rows = append(rows, []string{result.Check, strconv.FormatInt(result.Expected, 10), strconv.FormatInt(result.Found, 10), verdict})
	}
	text := table(rows)
	if !r.OK {
		examples = append(examples, next)
	}
	for _, line := range append(examples, r.Notes...) {
		text += "\n  " + line
	}
	return text + "\n"
}

// next is what to do about a difference. The demo stops the shop when its check
// is over, and keeps the data.
const next = `next: start the shop again (scripts/demo --rate 1, in another terminal, if it has ended with this check), then
    .orderpaid/bin/shopctl why ID                the way of an order, a user or an event
    .orderpaid/bin/shopctl outbox list           what is not published, and why
    .orderpaid/bin/shopctl dead-letters list     what no consumer could apply`

// maxExamples bounds how many differences of one kind are shown.
const maxExamples = 3

// A tally compares many single things under one name.
type tally struct {
	Result
	differ bool
}

func newTally(check string) *tally { return &tally{Result: Result{Check: check}} }

// compare adds one pair. Sums alone would hide two errors that cancel out.
func (t *tally) compare(expected, found int64, about string) {
	t.Expected += expected
	t.Found += found
	if expected != found {
		t.differ = true
		if len(t.Examples) < maxExamples {
			t.Examples = append(t.Examples, fmt.Sprintf("%s: %d instead of %d", about, found, expected))
		}
	}
}

// match adds one thing that should be as expected.
func (t *tally) match(expected, found any, about string) {
	t.Expected++
	if expected == found {
		t.Found++
		return
	}
	t.differ = true
	if len(t.Examples) < maxExamples {
		t.Examples = append(t.Examples, fmt.Sprintf("%s: %v instead of %v", about, found, expected))
	}
}

func (t *tally) result() Result {
	t.OK = !t.differ
	return t.Result
}

func single(check string, expected, found int64, examples ...string) Result {
	if len(examples) > maxExamples {
		examples = examples[:maxExamples]
	}
	return Result{check, expected, found, expected == found, examples}
}

// A checker compares a journal with everything that the shop has written.
type checker struct {
	site     Site
	sessions sessions
	expected *expectations
	ids      []string
}

// Verify waits until the shop has done what the journal entitles its client
// to, for as long as patience lasts, and then compares everything. That
// something differs is in the report, not an error. progress is told what is
// being waited for.
func Verify(ctx context.Context, s *Stack, journal string, patience time.Duration, progress func(Progress)) (*Report, error) {
	entries, err := ReadJournal(journal)
	if err != nil {
		return nil, err
	}
	return verify(ctx, s.Site(), entries, patience, progress)
}

// A Progress is how far a check is: so many checks of the databases pass.
// When all do, it waits until no event is on its way, and compares everything.
type Progress struct {
	Pass, Of  int
	Waiting   string // the first check that does not pass yet
	Comparing bool
}

func (p Progress) String() string {
	switch {
	case p.Comparing:
		return bar(p.Pass, p.Of) + " comparing all rows, messages and mails"
	case p.Pass == p.Of:
		return bar(p.Pass, p.Of) + " waiting until no event is on its way"
	}
	return fmt.Sprintf("%s %d of %d checks of the databases pass; not yet: %s", bar(p.Pass, p.Of), p.Pass, p.Of, p.Waiting)
}

func verify(ctx context.Context, site Site, entries []Entry, patience time.Duration, progress func(Progress)) (*Report, error) {
	open, err := site.openSessions(ctx)
	if err != nil {
		return nil, err
	}
	defer open.close()
	c := &checker{site: site, sessions: open, expected: expect(entries)}
	for _, order := range c.expected.orders {
		c.ids = append(c.ids, order.orderID)
	}
	started := time.Now()
	if err := c.await(ctx, started.Add(patience), progress); err != nil {
		return nil, err
	}
	waited := time.Since(started)
	report, err := c.report(ctx)
	if err != nil {
		return nil, err
	}
	report.Waited = waited
	return report, nil
}

// await looks into the databases until nothing differs any more and nothing is
// under way, or the deadline has passed.
func (c *checker) await(ctx context.Context, deadline time.Time, progress func(Progress)) error {
	poll := time.NewTicker(500 * time.Millisecond)
	defer poll.Stop()
	for {
		f, err := c.sessions.look(ctx, c.ids, c.site.Lag)
		if err != nil {
			return err
		}
		results := c.databases(f)
		pass, waiting := 0, ""
		for _, r := range results {
			if r.OK {
				pass++
			} else if waiting == "" {
				waiting = r.Check
			}
		}
		progress(Progress{Pass: pass, Of: len(results), Waiting: waiting})
		done := pass == len(results)
		if done {
			if done, err = c.site.quiet(ctx); err != nil {
				return err
			}
		}
		if done || time.Now().After(deadline) {
			progress(Progress{Pass: pass, Of: len(results), Comparing: true})
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}

// report makes the whole comparison.
func (c *checker) report(ctx context.Context) (*Report, error) {
	f, err := c.sessions.look(ctx, c.ids, c.site.Lag)
	if err != nil {
		return nil, err
	}
	if f.strays, err = c.sessions.strays(ctx); err != nil { // once: it reads whole tables
		return nil, err
	}
	facts, err := c.sessions.relayedFacts(ctx) // before the stream is read: what comes later is nobody's loss
	if err != nil {
		return nil, err
	}
	audit, err := AuditStream(ctx, c.site.NATSURL)
	if err != nil {
		return nil, err
	}
	mails, err := readMails(ctx, c.site.SimURL)
	if err != nil {
		return nil, err
	}
	lost, unproven := missing(facts, audit, time.Now())
	results := slices.Concat(c.answers(), c.databases(f), c.stream(audit, lost, unproven, len(facts)), c.mails(mails))
	return &Report{
		OK:      !slices.ContainsFunc(results, func(r Result) bool { return !r.OK }),
		Results: results,
		Notes: []string{
			fmt.Sprintf("%d answers in the journal; %d were lost and asked for again; %d repeated what had been accepted before",
				c.expected.answers, c.expected.lost, c.expected.repeated),
			fmt.Sprintf("%d messages on the stream, %d of them copies of an event that was there", audit.Messages, audit.Copies),
		},
	}, nil
}

// answers judges the journal by itself.
func (c *checker) answers() []Result {
	return []Result{
		single("requests without an answer", 0, int64(c.expected.open)),
		single("answers that contradict others", 0, int64(len(c.expected.surprises)), c.expected.surprises...),
	}
}

// databases compares what can be seen in the four databases.
func (c *checker) databases(f *found) []Result {
	states, kept := newTally("order: orders in the state of the last answer"), newTally("order: payments kept that do not fit")
	undone := newTally("order: follow-ups not done")
	awards, reversals := newTally("points: awards"), newTally("points: reversals")
	tasks, documents := newTally("notify: mails sent, by its own word"), newTally("search: documents in the right state")
	perKind, perUser := map[string]*tally{}, map[string][2]int64{}
	for _, o := range c.expected.orders {
		id := o.orderID
		states.match(orderRow{o.state(), o.version(), o.earned(), o.takenBack()}, f.orders[id], id)
		kept.compare(int64(len(o.misfits)), int64(f.exceptions[id]), id)
		undone.compare(0, int64(f.undone[id]), id)
		paid := int64(0)
		if o.paid {
			paid = 1
		}
		awards.compare(paid, int64(f.entries[id].Awards), id)
		reversals.compare(paid*int64(len(o.refunds)), int64(f.entries[id].Reversals), id)
		tasks.compare(paid, int64(f.tasks[id].Sent), id)
		documents.match(documentRow{o.state(), o.version(), o.refunded()}, f.documents[id], id)
		for _, kind := range orderKinds {
			if perKind[kind] == nil {
				perKind[kind] = newTally("order: " + kind + " in the outbox")
			}
			perKind[kind].compare(int64(o.events()[kind]), int64(f.facts[id][kind]), id)
		}
		sums := perUser[o.userID]
		perUser[o.userID] = [2]int64{sums[0] + o.earned() - o.takenBack(), sums[1] + f.entries[id].Points}
	}
	sums := newTally("points: sum of each of " + strconv.Itoa(len(perUser)) + " users")
	for _, user := range slices.Sorted(maps.Keys(perUser)) {
		sums.compare(perUser[user][0], perUser[user][1], user)
	}
	results := []Result{states.result(), kept.result()}
	for _, kind := range orderKinds {
		if t := perKind[kind]; t != nil {
			results = append(results, t.result())
		}
	}
	return append(results, awards.result(), reversals.result(), sums.result(),
		single("points: balances that are not the sum of their entries", 0, int64(f.badBalances)),
		tasks.result(), documents.result(), undone.result(),
		single("all databases: rows that no order accounts for", 0, int64(len(f.strays)), f.strays...),
		single("outboxes: events that wait for too long or are held", 0, int64(f.unpublished)),
		single("consumers: dead letters", 0, int64(f.failures)))
}

var orderKinds = []string{"OrderCreated.v1", "OrderPaid.v1", "OrderRefunded.v1", "OrderCancelled.v1"}

// stream compares the stream with the journal and with the outboxes.
func (c *checker) stream(audit *StreamAudit, lost, unproven []string, facts int) []Result {
	events := newTally("stream: events of these orders")
	for _, o := range c.expected.orders {
		for _, kind := range orderKinds {
			events.compare(int64(o.events()[kind]), int64(audit.ByOrder[o.orderID][kind]), o.orderID+" "+kind)
		}
	}
	return []Result{
		events.result(),
		single("stream: facts of all outboxes that are there, or too old", int64(facts), int64(facts-len(lost)), lost...),
		single("outboxes: evidence that the stream contradicts", 0, int64(len(unproven)), unproven...),
		single("stream: first appearances out of order", 0, int64(len(audit.Inversions)), audit.Inversions...),
		single("stream: messages that are no events", 0, int64(audit.Unreadable)),
	}
}

// checkCopies counts mails that came again under the same Message-ID.
const checkCopies = "mail sink: second copies"

// mails compares the mail sink with the journal: one mail for each paid order,
// and no second copy of any.
func (c *checker) mails(byOrder map[string][]string) []Result {
	mails, copies := newTally("mail sink: paid orders with a mail"), newTally(checkCopies)
	for _, o := range c.expected.orders {
		want, got := int64(0), byOrder[o.orderID]
		if o.paid {
			want = 1
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(got)))
		mails.compare(want, int64(len(distinct)), o.orderID)
		copies.compare(0, int64(len(got)-len(distinct)), o.orderID)
	}
	return []Result{mails.result(), copies.result()}
}
