// Package order owns orders: what is sold and for how much, who ordered what,
// whether it was paid, and what the customer is still waiting for.
//
//	                    payment.succeeded                payment.refunded
//	POST /v1/orders ─► PENDING_PAYMENT ────────► PAID ─┐ (any number of times,
//	                        │                     ▲    │  up to what was paid)
//	                        │ POST …/cancel       └────┘
//	                        ▼
//	                    CANCELLED
//
// Each arrow is one transaction: the order's row is locked, the rules decide,
// its version grows by one, and one event that carries the version is staged
// in the outbox: OrderCreated, OrderPaid, OrderRefunded, OrderCancelled. A
// change without its event, or an event without its change, cannot commit.
//
// It promises:
//   - An order that is paid is never cancelled, and the reverse.
//   - A payment is one payment, however often and under however many callback
//     ids the provider announces it.
//   - A callback that the rules refuse is kept, shown and answered as not
//     applied: the provider has moved money, so somebody has to look.
//   - Prices are the catalogue's at the moment of the order; the points of an
//     order are fixed when it is paid, and what refunds take back adds up to
//     exactly that.
//   - A repeated POST /v1/orders with the same Idempotency-Key is one order.
//
// It does not promise that points and mail have arrived when an order is paid.
// It says which of them are pending, late, failed or done ("follow-ups"), and
// learns that from the events of the services that do the work.
//
// It does not know its callers yet: an id is all it takes to read an order.
// Put it behind something that does.
//
// Read domain.go (the rules, without I/O), service.go (one function per use
// case, one transaction each), store.go (the SQL), events.go, consume.go, then
// the edges: http.go, webhook.go, run.go.
package order
