// Command bench measures, in one run and on one machine, what the parts can do
// (PostgreSQL and JetStream on their own), what Go programs would use instead
// of this project, and this project; then it holds the ratios against bounds.
//
//	scripts/bench ──► bench ──► its own PostgreSQL (fsync and synchronous_commit on)
//	                    │   ──► two nats-servers: sync_interval always, and the default
//	                    │
//	                    ├── limits:  raw publish, fetch and ack, the statements of a payment
//	                    ├── peers:   watermill, river, the row claim of the textbooks
//	                    └── this:    the programs of cmd/, as they are deployed
//
// What it promises:
//
//   - The same work for everyone: the same events, staged by everyone's own
//     means, before the clock starts; every publish acknowledged, every effect
//     committed.
//   - Candidates take turns (A B A B), so that a machine that slows down slows
//     all of them. Medians count; ratios of medians are judged, absolute
//     figures are only printed.
//   - A cell that did not do its work is an error and not a figure: after each
//     run the stream is read back and compared with the events and with the
//     evidence in the database.
//
// What it does not promise: figures for another machine. Client, PostgreSQL
// and nats-server share the cores, so what one of them takes the others lack.
//
// Read the files in this order: main.go, suite.go (cells, groups, turns),
// bounds.go (what is demanded), stand.go with process.go and broker.go (what
// everything runs on), meter.go, work.go and verify.go; then a file for each
// group: limits.go; rowclaim.go, watermill.go, river.go; drain.go, backlog.go,
// late.go; latency.go with clocks.go and shop.go; pay.go with capture.go and
// pgbench.go; points.go with points_rivals.go; whole.go; memory.go; and
// report.go with machine.go.
package main
