// Package natsbroker stores and delivers events through NATS JetStream. It is
// the only package that knows NATS; everything else sees [messaging.Publisher]
// and [messaging.Subscriber].
//
//	Publish ──► one atomic batch, one fsync ──► stream EVENTS (file, limits, sync always)
//	   └─ refused or no answer: the same ids    │
//	      once more, one by one                 ├─ durable points-awarder ──► Source ──► Fetch
//	                                            ├─ durable notify-sender
//	EnsureTopology makes stream and durables.   └─ …
//	Wake ··· core NATS, a hint that may be lost ··· OnWake
//
// It promises: a receipt without an error means that the stream holds the
// message on disk; messages of one key are stored in the order given; nothing
// is sent while the connection is down, so no publish can surface after its
// caller gave up the lease it was made under; a durable is bound, never made
// or changed, except by EnsureTopology.
//
// It does not promise that a message is stored or delivered only once. The
// stream drops a repeated id within its window (five minutes by default);
// behind that stands the consumer's inbox.
//
// Read the files in this order: broker.go, auth.go, publish.go, singly.go,
// flight.go, replies.go, outcome.go, subscribe.go, source.go, pull.go,
// delivery.go, read.go, replay.go, wake.go, topology.go, drift.go, ahead.go,
// status.go.
package natsbroker
