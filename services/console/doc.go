// Package console is where people see and steer the shop: customers buy here,
// support asks why an order waits, and the engineer on call finds what broke,
// mends it and proves it.
//
//	EVENTS ──► console-auditor ──► one transaction: inbox row, audit trail, progress, counts
//	           every kind                                  │
//	                                                    the board ──► /live
//	/ops of every service ──► backlogs, evidence, dead letters, replays ──► /why, /operate
//	the services' own APIs ──► the shop's pages: /, /cart, /orders, /account, /search
//
// It promises:
//   - The trail has one row for each event of every service, never changes and
//     holds no names, addresses or amounts.
//   - The board counts an order as lost only when nobody has its event any
//     more, and says "unknown" where a service that would know is silent.
//   - A service that does not answer is shown as such, and the rest is shown.
//   - Pages work without scripts; with them, the changing parts follow a stream.
//   - What an operator does goes to the services under the operator's own token.
//     They decide and record; the console can neither allow nor hide anything.
//
// It does not promise that the board is of this very moment: it is read once a
// second. It does not know who customers are: a browser shops as whoever its
// cookie says, which is good enough for a demo and nothing else.
//
// Read events.go and consume.go (what is heard), store.go (the SQL), domain.go
// (the arithmetic), board.go (the state of everything), service.go, http.go;
// then the pages: pages.go, lang.go, visitor.go, upstream.go, shop.go,
// checkout.go and account.go, live.go, why.go, operate.go, replays.go,
// reconcile.go; telemetry.go, run.go.
package console
