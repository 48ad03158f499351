// Package points keeps what customers have earned: a ledger that only grows,
// and a balance for each user that is its sum.
//
//	EVENTS ──► points-awarder ──► one transaction: inbox row, ledger entry,
//	           OrderPaid                            balance, PointsAwarded
//	           OrderRefunded                        (or PointsReversed)
//	                                                   │
//	GET /v1/users/{id}/points ◄── balance              └──► own outbox ──► EVENTS
//	GET /v1/users/{id}/points/entries ◄── ledger
//
// It promises:
//   - An order is awarded once and a refund reversed once, however often, in
//     however many copies and under however many event ids they are announced.
//   - A balance is the sum of its user's entries at every moment, because one
//     statement writes both.
//   - A refund that arrives before its payment waits for it and is not lost.
//   - Points are what the order fixed when it was paid. No rule is applied
//     here, so a replay years later books the same.
//   - A balance that cannot be represented is refused, never wrapped around.
//
// A balance can fall below zero, when points had been spent that a refund takes
// back. It is then a debt and is shown as one ("overdrawn").
//
// It does not promise that points are there when an order is paid; the order
// says when they are due. It does not know its callers yet: an id is all it
// takes to read a balance. Put it behind something that knows them.
//
// Read domain.go (what an entry is), events.go, consume.go (how events become
// entries), store.go (the SQL), service.go, http.go, run.go.
package points
