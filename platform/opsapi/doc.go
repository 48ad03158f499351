// Package opsapi is what each service shows and lets do on its second listener,
// for the operator's tool, the console, and other services.
//
// A service answers for its own database and never for another's. Whoever wants
// the whole picture asks all of them and joins; see the package operator.
//
//	GET  /ops/service                       who answers: consumers, kinds, the database's clock   viewer
//	GET  /ops/backlog                       what is unfinished, and for how long                  viewer
//	GET  /ops/drained                       200 when nothing is unfinished, else 503              viewer
//	GET  /ops/outbox                        staged events, by state, kind, time, aggregate, id    viewer, peer
//	POST /ops/outbox/lookup                 which of these events or versions are staged          viewer
//	GET  /ops/outbox/between                events between two versions of an aggregate           peer
//	POST /ops/outbox/payloads               events as they were staged                            peer
//	POST /ops/outbox/republish, /release    put lost or refused events back into the queue        operator
//	GET  /ops/inbox                         what consumers did with an aggregate's events         viewer
//	POST /ops/inbox/lookup                  … and with these events, failures included            viewer
//	GET  /ops/dead-letters, /groups, /{id}  what could not be applied; payloads are masked        viewer
//	POST /ops/dead-letters/{id}/reveal      the payload; that somebody looked is recorded         operator
//	POST /ops/dead-letters/retry, /discard  by ids, consumer, cause or aggregate                  operator
//	POST /ops/dead-letters/{id}/fix         a corrected event instead of the one that failed      operator
//	GET  /ops/exceptions, /{id}             what came from outside and no rule takes              viewer
//	POST /ops/exceptions/settle             … ended by a person                                   operator
//	GET  /ops/doubts                        effects that may or may not have happened             viewer
//	POST /ops/doubts/settle                 … as a person has found out                           operator
//	POST /ops/replays/plan                  what a replay would do                                viewer
//	GET  /ops/replays, /{id}                replays and their reports                             viewer
//	POST /ops/replays                       make one                                              operator
//	POST /ops/replays/{id}/start, /stop     work on it, or no longer                              operator
//	POST /ops/replays/{id}/approve, /refuse by somebody else than who made it                     approver
//	GET  /ops/evidence                      everything this database knows about an id            viewer
//	GET  /ops/facts, /effects               for reconciliation: what must have been published,    viewer
//	POST /ops/effects/lookup                and what came of it
//	GET  /ops/invariants                    what must hold at any moment                          viewer
//	GET  /ops/actions                       what people did, with their reasons                   viewer
//
// Requests carry a bearer token; its name is who acts. Whatever changes
// something needs a reason, in the body or in the header X-Reason. Without
// tokens in its configuration a service lets nobody in.
//
// Answers are JSON, ids are strings, errors are problem documents (RFC 9457). A
// query is understood as a whole or refused: an unknown parameter, or a value
// that is none of a parameter's, would else list more than was asked for, or
// nothing, as if nothing were wrong.
// Lists are read in pages: "next" of one page is the parameter of the next.
// Pages go by ids or times and not by offsets, so rows that are added
// meanwhile shift nothing; a row whose transaction commits late may be missed
// by one pass over the pages and is found by the next.
//
// Read in this order: opsapi.go (what a service gives), types.go, auth.go,
// flags.go; then outbox.go, deadletters.go (and mask.go), exceptions.go, doubts.go, replays.go (and
// source.go), evidence.go, reconcile.go; tickets.go; client.go is the other side.
package opsapi
