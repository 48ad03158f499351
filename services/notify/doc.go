// Package notify tells customers by mail what has become of their orders.
//
//	EVENTS ──► notify-sender ──► one transaction: inbox row and delivery task
//	           OrderPaid                                  │ after the commit
//	                                                      ▼
//	PUT /v1/users/{id}/contact ──► address ──► Delivery: claim, send, write down
//	                                                      │ SMTP
//	GET /v1/users/{id}/notifications ◄── state            ▼
//	                                              mail server ──► customer
//	own outbox ◄── NotificationSent, NotificationFailed ──┘
//
// It promises:
//   - An order has one mail of a kind, however often and under however many
//     event ids it is asked for.
//   - A mail is sent after the commit that asked for it, never within: what is
//     rolled back has told nobody.
//   - Every mail ends as sent, failed or unknown, and says why; an order's
//     follow-ups learn it by an event.
//   - A mail server that is away costs time and no mail. One that refuses a
//     mail for now is asked a bounded number of times.
//   - Addresses are in this service's database and in mails. They are in no
//     event, log, trace, metric or error, and answers show them masked.
//
// It does not promise that a mail is sent exactly once, because SMTP cannot:
// when the connection breaks after the last byte, or the process dies before it
// has written down the answer, nobody knows whether the server has the mail.
// Such a mail is sent again once, with the same Message-ID, and if that is not
// answered either it stays "unknown" for a person. So a customer gets a mail
// at most twice (--unknown-repeats; with 0 at most once).
//
// Nor does it promise that a mail was read: sent means that a server took it.
// It does not know its callers yet. Put it behind something that does.
//
// Read domain.go (states and what leads to them), events.go, consume.go (how
// an event becomes a task), delivery.go (how a task becomes a mail), smtp.go,
// health.go, template.go, store.go (the SQL), service.go, http.go, run.go.
package notify
