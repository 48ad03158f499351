package main

import (
	"context"
	"fmt"
	"time"
)

// A meter takes the time and the CPU of every process involved, and the WAL.
type meter struct {
	s      *stand
	own    []*child // the candidate's processes; none: it runs in this one
	before usage
	began  time.Time
}

type usage struct {
	postgres, nats, own, self, busy time.Duration
	wal                             int64
}

// start begins to measure.
func (s *stand) start(ctx context.Context, own ...*child) (*meter, error) {
	m := &meter{s: s, own: own}
	var err error
	if m.before, err = m.usage(ctx); err != nil {
		return nil, err
	}
	m.began = time.Now()
	return m, nil
}

func (m *meter) usage(ctx context.Context) (u usage, err error) {
	if u.wal, err = m.s.walPosition(ctx); err != nil {
		return u, err
	}
	if u.postgres, err = cpuOfTree(m.s.pg.PID()); err != nil {
		return u, fmt.Errorf("CPU of PostgreSQL: %w", err)
	}
	for _, b := range []*broker{m.s.always, m.s.lazy} {
		st, err := readStat(b.process.pid())
		if err != nil {
			return u, fmt.Errorf("CPU of nats-server: %w", err)
		}
		u.nats += st.cpu
	}
	for _, c := range m.own {
		st, err := readStat(c.pid())
		if err != nil {
			return u, fmt.Errorf("CPU of %s: %w", c.name, err)
		}
		u.own += st.cpu + st.reaped
	}
	u.self = ownCPU()
	u.busy, err = busyCPU()
	return u, err
}

// restart moves the beginning of the time, and of nothing else, to now.
func (m *meter) restart() { m.began = time.Now() }

// stop returns what n events have taken.
func (m *meter) stop(ctx context.Context, n int) (Reading, error) {
	took := time.Since(m.began)
	after, err := m.usage(ctx)
	if err != nil {
		return nil, err
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) }
	b := m.before
	r := Reading{
		rate:        float64(n) / took.Seconds(),
		cpuPostgres: each(after.postgres - b.postgres),
		cpuNATS:     each(after.nats - b.nats),
		walDrain:    float64(after.wal-b.wal) / float64(n),
	}
	ours := after.postgres - b.postgres + after.nats - b.nats + after.own - b.own + after.self - b.self
	r[others] = max(0, (after.busy-b.busy-ours).Seconds()/took.Seconds())
	if len(m.own) == 0 {
		r[cpuOwn] = each(after.self - b.self)
	} else {
		r[cpuOwn] = each(after.own - b.own)
		r[cpuLoad] = each(after.self - b.self)
	}
	return r, nil
}
