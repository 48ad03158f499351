// Package httpserver is the HTTP edge that every service shares: the router
// with its middleware, the listener, the reading of JSON and the writing of
// answers and errors.
//
//	request ─► headers ─► deadline ─► span, metrics ─► log ─► recover ─► route ─► handler
//	                                                                               │ ReadJSON
//	answer  ◄─────────────────── WriteJSON, or WriteError as problem+json ◄─────────┘
//
// It promises: a body is read strictly or refused with a code that says why;
// every error is an RFC 9457 problem document; a panic costs one request; a
// client that reads or writes slowly cannot hold a connection for longer than
// the limits below; a stop lets running requests finish. What clients send
// (paths, queries, bodies, addresses) reaches neither logs nor traces; the
// route's pattern stands for the path.
//
// It does not promise: authentication, rate limits, TLS. Those belong to the
// service or to what stands in front of it.
//
// Read router.go, server.go, ops.go, then json.go, problem.go, page.go.
package httpserver
