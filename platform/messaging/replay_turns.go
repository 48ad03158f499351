package messaging

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A consumer works on its running replays in turn, a chunk of each. One that
// cannot go on, because its events can neither be applied nor recorded, or that
// was told to go slowly, so holds up none of the others.

// maxTurns is how many replays take turns at once. People start them; the rest
// begin when one of these ends or is stopped.
const maxTurns = 1000

// sqlRunning asks for the horizon with every chunk: a replay may go on for days,
// and retention with it.
const sqlRunning = `
SELECT replay_id, allow_external, per_second, (SELECT greatest(inbox_since, 'epoch') FROM message_horizon) AS since FROM message_replay
 WHERE consumer = $1 AND state = 'running' ORDER BY started_at, replay_id LIMIT $2`

// A runningReplay is what a replay may do. It must not do more, whatever was
// planned.
type runningReplay struct {
	ID            uuid.UUID
	AllowExternal bool // what leads outside the database is allowed
	PerSecond     int
	Since         time.Time // how far back the inbox remembers
}

// A turn is how far a running replay has got, as this replica knows. A new
// replica begins with the oldest.
type turn struct {
	last     time.Time // when it was worked on
	due      time.Time // when it may go on: its rate is kept, and it rests after an error
	failures int       // in a row
}

type turns map[uuid.UUID]*turn

// next returns the replay whose turn it is: of those that may go on, the one
// that was worked on the longest ago. If there is none, pause says for how long
// not to ask; a replay that is started meanwhile waits for as long.
func (t turns) next(running []runningReplay, now time.Time) (next runningReplay, pause time.Duration) {
	listed := make(map[uuid.UUID]bool, len(running))
	found := false
	pause = time.Second
	for _, r := range running {
		listed[r.ID] = true
		if t[r.ID] == nil {
			t[r.ID] = &turn{}
		}
		if left := t[r.ID].due.Sub(now); left > 0 {
			pause = min(pause, left)
		} else if !found || t[r.ID].last.Before(t[next.ID].last) {
			next, found = r, true
		}
	}
	maps.DeleteFunc(t, func(id uuid.UUID, _ *turn) bool { return !listed[id] })
	if found {
		pause = 0
	}
	return next, pause
}

// replayLoop works on running replays of this consumer until ctx is done.
func (c *Consumer) replayLoop(ctx context.Context) {
	known := turns{}
	for failures := 0; ctx.Err() == nil; {
		running, err := c.runningReplays(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.cfg.Logger.Warn("replays are held up", "code", codeOf(err), "error", detailOf(err))
			}
			wait(ctx, backoff(failures, time.Second, 30*time.Second))
			failures++
			continue
		}
		failures = 0
		next, pause := known.next(running, time.Now())
		if pause > 0 {
			wait(ctx, pause)
			continue
		}
		c.takeTurn(ctx, next, known[next.ID])
	}
}

func (c *Consumer) runningReplays(ctx context.Context) ([]runningReplay, error) {
	rows, err := c.pool.Query(ctx, sqlRunning, c.name, maxTurns)
	if err != nil {
		return nil, fmt.Errorf("read running replays: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[runningReplay])
}

// takeTurn works on one chunk of a replay and notes when it may go on.
func (c *Consumer) takeTurn(ctx context.Context, r runningReplay, t *turn) {
	t.last = time.Now()
	n, err := c.replayChunk(ctx, r)
	if err == nil {
		t.due, t.failures = t.last.Add(time.Duration(n)*time.Second/time.Duration(r.PerSecond)), 0
		return
	}
	if ctx.Err() == nil {
		c.cfg.Logger.Warn("a replay is held up", "replay_id", r.ID, "code", codeOf(err), "error", detailOf(err))
	}
	t.due = time.Now().Add(backoff(t.failures, time.Second, 30*time.Second))
	t.failures++
}
