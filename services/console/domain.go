package console

import (
	"fmt"
	"math"
	"time"
)

// A Tally is what the trail says about all orders.
type Tally struct {
	Paid       int64
	Credited   int64
	Mailed     int64
	Indexed    int64
	Duplicated int64 // effects beyond the first of an order; must stay 0
	Unfinished int64 // orders that were paid and lack an effect

	OldestSeconds float64 // since the oldest of them was paid
}

// Oldest returns the age of the oldest unfinished order.
func (t Tally) Oldest() time.Duration { return time.Duration(t.OldestSeconds * float64(time.Second)) }

// A Minute is what happened within one.
type Minute struct {
	Minute                          time.Time
	Paid, Credited, Mailed, Indexed int64
}

// An Overdue order was paid long ago and lacks an effect.
type Overdue struct {
	OrderID    string
	Uncredited bool
	Unmailed   bool
	Unindexed  bool
}

// A Forecast says when a backlog will be gone, by what was seen of it.
type Forecast struct {
	Backlog int64
	Growth  float64       // per second; below zero it shrinks
	Drained time.Duration // until it is gone; 0 if that cannot be said or it is small
	Breach  time.Duration // until it is larger than the bound; 0 if it shrinks or is small
}

// breachBound is the backlog at which orders begin to be late: what a service
// works off within the promised minute.
const breachBound = 10_000

// forecastFrom is the backlog from which a forecast says something: fewer events
// are on their way, and one more of them is no trend.
const forecastFrom = 10

// forecast looks at a backlog at two moments. A backlog that shrinks is drained
// in backlog ÷ (success − inflow); one that grows breaks its bound some time.
func forecast(before, now int64, between time.Duration) Forecast {
	f := Forecast{Backlog: now}
	if between <= 0 {
		return f
	}
	f.Growth = float64(now-before) / between.Seconds()
	switch {
	case now < forecastFrom:
	case f.Growth < -0.05:
		f.Drained = seconds(float64(now) / -f.Growth)
	case f.Growth > 0.05 && now < breachBound:
		f.Breach = seconds(float64(breachBound-now) / f.Growth)
	}
	return f
}

// seconds is a duration that never wraps around.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 30*24*3600) * float64(time.Second)).Round(time.Second)
}

// Bars scales counts to heights from 0 to full, so that a small count can be
// seen beside a large one.
func bars(counts []int64, full float64) []float64 {
	most := int64(1)
	for _, n := range counts {
		most = max(most, n)
	}
	heights := make([]float64, len(counts))
	for i, n := range counts {
		if n > 0 {
			heights[i] = math.Max(2, math.Round(float64(n)/float64(most)*full))
		}
	}
	return heights
}

// A Money is an exact amount in minor units.
type Money struct {
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Exponent  int    `json:"exponent"`
	Formatted string `json:"formatted"`
}

// Plus adds an amount of the same currency n times.
func (m Money) Plus(other Money, n int64) Money {
	m.Amount += other.Amount * n
	return m
}

// String writes the amount with its currency, without floats: 19.90 is exact
// only as 1990.
func (m Money) String() string {
	sign, amount := "", m.Amount
	if amount < 0 {
		sign, amount = "−", -amount
	}
	if m.Exponent <= 0 {
		return fmt.Sprintf("%s %s%d", m.Currency, sign, amount)
	}
	unit := int64(math.Pow10(m.Exponent))
	return fmt.Sprintf("%s %s%d.%0*d", m.Currency, sign, amount/unit, m.Exponent, amount%unit)
}

// Limits of a cart, which lives in the customer's browser and so can hold
// anything.
const (
	maxLines    = 20
	maxQuantity = 99
)
