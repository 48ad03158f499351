// Package demo runs the whole shop on one machine, asks a lot of it, and
// checks what it promised.
//
//	demo (this process) ── holds a pipe to each child ──┐
//	  │ supervise.go  starts, restarts, stops           │ when it closes, the child ends
//	  ├─► PostgreSQL   nats-server                      │
//	  ├─► order  points  notify  search  sim  ◄─────────┘
//	  ├─► relay-1  relay-2
//	  │
//	  │ load.go       places orders, announces payments: late, twice, reversed
//	  │ journal.go    every answer, on the disk before it counts
//	  └ check.go      journal = four databases = stream = mail sink?
//
// The check trusts nothing that runs: what it expects comes from the journal
// alone, and what it finds is read from where the services wrote it.
//
// What it does not promise: it is no benchmark (client and shop share the
// machine), and no deployment (one user, no passwords, one broker).
//
// Read run.go; then stack.go, supervise.go, child.go and guard.go for the
// processes; plan.go, load.go, client.go and journal.go for the load; and
// expect.go, found.go, stream.go and check.go for the proof.
package demo
