package messaging

import (
	"maps"
	"sync"
	"time"
)

// awayGrace is how much longer than asked for an event may stay away. One that
// has not come by then is waited for no longer: its stream may be gone.
const awayGrace = time.Minute

// awayMargin is how much later an event is due that must come after others.
const awayMargin = 50 * time.Millisecond

// handedBack remembers which events this replica has given back to the broker
// for a while. The broker delivers the next event of the same aggregate
// meanwhile, and it must not have its effect first: it is handed back as well,
// until the others are due.
//
// It is this process's memory: a replica that takes the place meanwhile knows
// nothing of it. Who needs order over that as well needs [Consumer.EveryVersion].
type handedBack struct {
	mu   sync.Mutex
	away map[aggregateKey]map[int64]time.Time // by version, when it is due again
}

func (h *handedBack) add(it *item, delay time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away == nil {
		h.away = map[aggregateKey]map[int64]time.Time{}
	}
	key := it.aggregate()
	if h.away[key] == nil {
		h.away[key] = map[int64]time.Time{}
	}
	h.away[key][it.env.AggregateVersion] = time.Now().Add(delay)
}

// An earlyItem must not be applied before others of its aggregate, which come
// within a time.
type earlyItem struct {
	*item
	delay time.Duration
}

// divide returns the events that may be applied now, and those that an earlier
// one of their aggregate, which is away, must come before.
func (h *handedBack) divide(items []*item) (free []*item, early []earlyItem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.away) == 0 {
		return items, nil
	}
	now := time.Now()
	for _, it := range items {
		if due := h.before(it, now); due.IsZero() {
			free = append(free, it)
		} else {
			early = append(early, earlyItem{it, max(0, due.Sub(now)) + awayMargin})
		}
	}
	return free, early
}

// before notes that an event is here, and returns when the last of the earlier
// ones that are away is due; the zero time if there is none.
func (h *handedBack) before(it *item, now time.Time) (last time.Time) {
	key := it.aggregate()
	away := h.away[key]
	delete(away, it.env.AggregateVersion)
	maps.DeleteFunc(away, func(_ int64, due time.Time) bool { return now.Sub(due) > awayGrace })
	if len(away) == 0 {
		delete(h.away, key)
	}
	for version, due := range away {
		if version < it.env.AggregateVersion && due.After(last) {
			last = due
		}
	}
	return last
}

// comeAgain hands an event back to the broker for a while.
func (c *Consumer) comeAgain(it *item, delay time.Duration) {
	c.handedBack.add(it, delay)
	for _, d := range it.deliveries {
		if err := d.Retry(delay); err != nil { // it comes after the acknowledgement wait instead
			c.cfg.Logger.Warn("delayed redelivery not asked for", "event_id", it.env.EventID, "error", err)
		}
	}
}

// inTurn returns the events that may be applied now, and hands the others back.
func (c *Consumer) inTurn(items []*item) []*item {
	free, early := c.handedBack.divide(items)
	for _, e := range early {
		c.comeAgain(e.item, e.delay)
	}
	return free
}
