package postgres_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/postgres"
)

// What the proxy does when it sees a COMMIT.
const (
	cutBeforeForward = "cut before the server gets it"
	cutAfterAnswer   = "cut after the server has done it"
	swallowAnswer    = "keep the server's answer, and the connection open"
)

// openThroughProxy returns a second pool to the database of pool, through a
// proxy that interferes with COMMIT at an exact point of the protocol, which
// no kill and no firewall could hit.
func openThroughProxy(t *testing.T, pool *pgxpool.Pool, onCommit string) *pgxpool.Pool {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := pool.Config().ConnConfig
	network, address := pgconn.NetworkAddress(to.Host, to.Port)
	var conns sync.WaitGroup
	done := make(chan struct{})
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { proxyOne(client, network, address, onCommit, done) })
		}
	})
	dsn := fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", to.User, to.Password, listener.Addr(), to.Database)
	proxied, err := postgres.Open(t.Context(), dsn, postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(done)
		_ = listener.Close()
		proxied.Close()
		conns.Wait()
	})
	return proxied
}

// proxyOne serves one session until the client leaves or a COMMIT comes.
func proxyOne(client net.Conn, network, address, onCommit string, done <-chan struct{}) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	answers := make(chan struct{})
	pauseAnswers := make(chan struct{})
	go func() {
		defer close(answers)
		if copyAnswers(client, server, pauseAnswers) != nil {
			_ = client.Close() // the server has left: so must its client see
		}
	}()
	defer func() { _ = server.Close(); <-answers }()

	for first := true; ; first = false {
		msg, err := readMessage(client, first)
		if err != nil {
			return
		}
		commit := msg[0] == 'Q' && bytes.HasPrefix(msg[5:], []byte("commit"))
		if commit && onCommit == cutBeforeForward {
			return
		}
		if commit {
			close(pauseAnswers)
		}
		if _, err := server.Write(msg); err != nil {
			return
		}
		if commit {
			<-answers // the server has answered, so the transaction is done
			if onCommit == swallowAnswer {
				<-done
			}
			return
		}
	}
}

// copyAnswers forwards what the server says; once paused, it reads one more
// answer, drops it and returns nil.
func copyAnswers(client io.Writer, server io.Reader, paused <-chan struct{}) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return err
		}
		select {
		case <-paused:
			return nil
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// readMessage reads one message of the client. The first has no type byte.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
func readMessage(r io.Reader, first bool) ([]byte, error) {
	head := make([]byte, 5)
	if first {
		head = head[:4]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
	_, err := io.ReadFull(r, rest)
	return append(head, rest...), err
}

// payments counts the rows that insertPayment wrote.
func payments(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM payment`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insertPayment(tx pgx.Tx, t *testing.T) error {
	_, err := tx.Exec(t.Context(), `INSERT INTO payment (id) VALUES ($1)`, "pay_1")
	return err
}
