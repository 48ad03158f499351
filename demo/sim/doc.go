// Package sim is the world outside the shop, small enough to run on a laptop
// and bad-tempered on request: a mail server that keeps what it accepts, and a
// payment provider that announces payments by signed callbacks.
//
//	shop ──SMTP──► mail sink ──► file, one mail a line ──► GET /mails
//	                  ▲
//	             PUT /faults (refuse, hang, drop, slow)
//
//	customer ──POST /payments──► provider ──signed callbacks──► the shop's webhook
//	                                         (copies, delays, bad signatures)
//
// It promises what its real counterparts promise: a mail that was answered
// with 250 survives a restart and a power cut; a callback that was not
// answered with 2xx is repeated, a bounded number of times. It does not relay
// mail, check credentials or move money.
//
// The shop knows nothing of this package and this package knows nothing of
// the shop's code: they meet at SMTP and HTTP.
//
// Read smtp.go and mailbox.go for mail, payment.go and sign.go for payments,
// http.go for the whole interface.
package sim
