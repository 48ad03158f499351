// Package operator answers questions about the whole shop, and mends it: it
// asks every service's ops API and joins what they say. It reads no database of
// a service and no service's Go types.
//
//	fleet.go      all services at once; one that does not answer is shown as that
//	why.go        what became of an order, a payment, an event, a customer's orders
//	trail.go      each event with what each consumer made of it
//	verdict.go    the same in a sentence that a customer could read
//	reconcile.go  what must be true across services, checked by id and version
//	checks.go     the checks of a page of facts and of a page of effects
//	stream.go     what the outboxes say is on the stream, compared with the stream
//	repair.go     the same commands that a person would give, at a bounded rate
//	sandbox.go    a replay on a copy of a database, to see what it would do
//	show.go       all of it as text
//
// What it changes it changes through the ops APIs, as the bearer of the token
// that it was given, with a reason.
package operator
