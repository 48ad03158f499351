package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// limits bounds what one client can hold. Without each of them, a client that
// sends or reads one byte a minute keeps a connection, and a goroutine, for
// good.
type limits struct {
	readHeader, read, write, idle time.Duration
	drain                         time.Duration // for running requests once ctx is done
	headerBytes                   int
}

var defaultLimits = limits{
	readHeader:  5 * time.Second,
	read:        15 * time.Second,
	write:       30 * time.Second,
	idle:        60 * time.Second,
	drain:       10 * time.Second,
	headerBytes: 32 << 10,
}

// Run serves h at addr, for example "127.0.0.1:8080", until ctx is done. Then
// it stops accepting, gives running requests 10 seconds, and returns nil when
// all of them were answered.
//
// Requests do not see ctx end: they are what the 10 seconds are for. Those
// that need longer have their context cancelled and their connection cut, and
// Run returns an error.
func Run(ctx context.Context, addr string, h http.Handler) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	return Serve(ctx, ln, h)
}

// Serve is [Run] on a listener that exists already; it closes it.
func Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	return serve(ctx, ln, h, defaultLimits)
}

func serve(ctx context.Context, ln net.Listener, h http.Handler, lim limits) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: lim.readHeader,
		ReadTimeout:       lim.read,
		WriteTimeout:      lim.write,
		IdleTimeout:       lim.idle,
		MaxHeaderBytes:    lim.headerBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug), // names clients' addresses
	}
	addr := ln.Addr().String()
	slog.InfoContext(ctx, "listening", "addr", addr)

	served := make(chan error, 1)
	go func() { served <- srv.Serve(&toldListener{Listener: ln, log: slog.Default()}) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", addr, errors.Join(err, srv.Close()))
	case <-ctx.Done():
	}

	drainCtx, cancel := context.WithTimeout(requests, lim.drain)
	defer cancel()
	err := srv.Shutdown(drainCtx)
	if closed := <-served; !errors.Is(closed, http.ErrServerClosed) {
		err = errors.Join(err, closed)
	}
	if err != nil { // cut first, then cancel: a handler that gives up must not look as if it had answered
		return fmt.Errorf("drain %s within %s: %w", addr, lim.drain, errors.Join(err, srv.Close()))
	}
	return nil
}

// toldListener tells, about once a minute, why no connection is accepted: a
// process without a free file descriptor looks like a network that is slow, and
// net/http tries again without an end.
type toldListener struct {
	net.Listener
	log  *slog.Logger
	told time.Time
}

func (l *toldListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) && time.Since(l.told) >= time.Minute {
		l.told = time.Now()
		l.log.Error("no connection can be accepted", "addr", l.Addr().String(), "error", err)
	}
	return conn, err
}
