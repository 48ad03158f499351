// Package messaging carries facts from one service's database to others, at
// least once between processes and with exactly one effect per consumer and
// event inside each database.
//
//	service ── one transaction ──► business rows + message_outbox + message_outbox_pending
//	                                                   │
//	                              Relay: lease shards, read in order, publish,
//	                              wait for the ack, turn queue rows into evidence
//	                                                   │
//	                                              Publisher ── broker ── Subscriber
//	                                                                         │
//	                              Consumer: one transaction for a group of events:
//	                              fence, inbox rows, handlers, commit; then ack
//	                                                                         │
//	                                       message_inbox + the consumer's business rows
//
// # Reading order
//
// The files follow an event through its life: envelope.go (what an event is),
// outbox.go and write.go (staged with the business change), lease.go and relay.go
// (published, in order; pace.go says how many at a time), settle.go (what the
// broker answered), broker.go (what an adapter must promise),
// consumer_config.go, consumer.go and place.go (who consumes), scan.go (read
// in one pass), group.go (one transaction for many events), inbox.go (applied
// once), retry.go (which errors lead where), circuit.go (when all fail alike),
// handback.go (given back for a while), failure.go and park.go (recorded, tried
// again, others waiting behind it), stored.go (what is tried from a table),
// gap.go (a missing version). Then what people do: deadletter.go, correct.go,
// replay.go, replay_turns.go and replays.go, history.go, audit.go; and what keeps
// the tables small and safe: retention.go, retention_rows.go, seal.go.
//
// # What a handler returns
//
//	returns               messaging does
//	nil                   commits inbox row and the handler's writes, then acks;
//	                      a lost ack means a redelivery, which the inbox absorbs
//	Permanent(err)        rolls back; commits a dead letter; only then acks
//	                      (for a batch handler: once the batch is one event)
//	RetryAfter(err, d)    rolls back; records the event and acks; tries it again, not before d
//	another error, panic  rolls back; records the event and acks; tries it again after a
//	                      jittered backoff, until its budget is spent: then a dead letter;
//	                      also an error of another system's, and one of tx that was ignored
//	commit unknown        treated as not done: the same transaction again; the
//	                      inbox decides whether it had committed
//
// Serialization failures, deadlocks and lock timeouts repeat the transaction a
// few times. While the database is away nothing is read and nothing is
// counted against any event; the same while one event after another fails with
// one cause, up to a bound (circuit.go).
//
// # What is promised
//
//   - An event staged in a transaction that commits is published, however often
//     processes die; one that is rolled back never is.
//   - Events of one aggregate appear on the stream, each for the first time, in
//     the order of their versions, with any number of relays.
//   - Each consumer's effect on its own database happens once per event.
//   - Nothing is dropped: what cannot be applied is in message_failure with its
//     bytes, what cannot be published is in message_outbox_held.
//
// # What is not promised
//
//   - "Exactly once" without these boundaries. A handler that calls another
//     system calls it again when its transaction is repeated; do such things
//     after the commit, from a row (see services/notify/delivery.go).
//   - Order between aggregates, or in time between consumers.
//   - Order at a consumer while its active replica changes: what the old one
//     had in hand, or had handed back, comes again after a while, and a later
//     event of the aggregate may come before. A handler must bear that, or the
//     consumer counts versions ([Consumer.EveryVersion]).
//   - That a broker keeps what it acknowledged. That is why published facts
//     stay in the outbox.
package messaging
