// Package search finds orders by the words of their products, in any language,
// by customer and by state.
//
//	EVENTS ──► search-indexer ──► inbox row + order document, one transaction
//	                                               │
//	             GET /v1/orders/search ──► order_document (live slot)
//	                                               ▲ swapped in one transaction
//	EVENTS, from its first message ──► rebuild ──► order_document (other slot)
//
// It promises:
//   - A document is what its order's events say, applied strictly in the order
//     of their versions. An OrderPaid that comes before its OrderCreated waits
//     and is not lost; a late one changes nothing.
//   - What can be read can be found: text is cut by the same rules when it is
//     stored and when it is asked for (tokenize.go), and no text is too long or
//     too odd to be stored.
//   - Pages are stable: an order does not move within the list, and none shows
//     up twice.
//   - The index can be made anew from the stream while it serves and takes
//     events (rebuild.go).
//
// It does not promise to be up to date. Every answer says how far it has come
// (indexed_as_of); an order that was just paid may still be shown as unpaid.
// The order service's own answer is the one that counts.
//
// It does not know its callers yet. Put it behind something that does, and
// that sets user_id for customers.
//
// Read domain.go (what a document is), events.go, consume.go (how it follows
// the events), store.go (the SQL), tokenize.go (how text becomes findable),
// service.go, http.go, run.go, and last rebuild.go and rebuild_switch.go.
package search
