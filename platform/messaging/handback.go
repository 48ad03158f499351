package messaging

import (
	"maps"
	"sync"
	"time"
)

// awayGrace is how much longer than asked for an event may stay away. One that
// has not come by then is waited for no longer: its stream may be gone.
const awayGrace = time.Minute

// handedBack remembers which events this replica has given back to the broker
// for a while. The broker delivers the next event of the same aggregate
// meanwhile, and it must not have its effect first: it is handed back as well.
//
// It is forgotten with the place: whoever is the active replica then is
// delivered what was handed back before what is new.
type handedBack struct {
	mu   sync.Mutex
	away map[aggregateKey]map[int64]time.Time // by version, until when it is waited for
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
	h.away[key][it.env.AggregateVersion] = time.Now().Add(delay + awayGrace)
}

// divide returns the events that may be applied now, and those that an earlier
// one of their aggregate, which is away, must come before.
func (h *handedBack) divide(items []*item) (free, behind []*item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.away) == 0 {
		return items, nil
	}
	now := time.Now()
	for _, it := range items {
		if h.overtakes(it, now) {
			behind = append(behind, it)
		} else {
			free = append(free, it)
		}
	}
	return free, behind
}

// overtakes notes that an event is here, and reports whether an earlier one is
// still away.
func (h *handedBack) overtakes(it *item, now time.Time) bool {
	key := it.aggregate()
	away := h.away[key]
	delete(away, it.env.AggregateVersion)
	maps.DeleteFunc(away, func(_ int64, until time.Time) bool { return now.After(until) })
	if len(away) == 0 {
		delete(h.away, key)
	}
	for version := range away {
		if version < it.env.AggregateVersion {
			return true
		}
	}
	return false
}

func (h *handedBack) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = nil
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
	free, behind := c.handedBack.divide(items)
	for _, it := range behind {
		c.comeAgain(it, c.cfg.RetryDelayMax/4)
	}
	return free
}
