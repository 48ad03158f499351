// Package faults lets tests kill a process at the exact place where a crash
// hurts most: between a commit and an acknowledgement, between an
// acknowledgement and the note of it.
//
// The code names such a place with [Hit]. It does nothing, at the price of one
// comparison, unless the environment says
//
//	ORDERPAID_FAULT=relay.after_ack_before_mark      the first time
//	ORDERPAID_FAULT=relay.after_ack_before_mark:3    the third time
//
// and then the process sends itself SIGKILL: no deferred call runs, no buffer
// is flushed, no lease is given back. That is what a crash is, and what a
// returned error or a panic is not.
//
// # Points
//
//	order.before_commit               the order's new state and its event written, nothing committed
//	order.after_commit                both committed, the provider has no answer
//	relay.before_publish              a batch is read and nothing of it sent
//	relay.after_publish_before_ack    events are on the wire, no answer has been read
//	relay.after_ack_before_mark       the broker has it, the queue does not know
//	relay.inside_takeover             shards are claimed in the database, not yet in the process
//	consumer.before_commit            effects written, nothing committed
//	consumer.after_commit_before_ack  effects committed, the broker does not know
//	consumer.after_ack                acknowledgements sent, perhaps not arrived
//	failure.before_commit             a failure written, not committed
//	failure.after_commit_before_ack   a failure committed, the broker does not know
//	failure.after_retry               a recorded event applied and its row resolved
//	replay.after_apply_before_done    replayed events applied, their items still open
//	reconcile.between_repairs         one command of a repair is done, the next not begun
//	delivery.before_send              a mail is claimed and nothing of it sent
//	delivery.after_answer             the mail server has answered, the database does not know
//
// There is no registry: a point is the string at its call, and its name says
// who, when, and between what. A test compares the code with the list of points
// in this comment.
package faults
