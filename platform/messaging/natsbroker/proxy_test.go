package natsbroker_test

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"orderpaid/platform/natstest"
)

// What a proxy does to what the server sends.
type mood int32

const (
	honest  mood = iota
	swallow      // the next acknowledgement of a publish disappears
	cut          // it disappears, and the connection with it
	mute         // nothing gets through any more, in either direction
)

// A proxy stands between client and server.
type proxy struct {
	listener net.Listener
	target   string
	mood     atomic.Int32
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, s *natstest.Server) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: strings.TrimPrefix(s.URL(), "nats://")}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string      { return "nats://" + p.listener.Addr().String() }
func (p *proxy) set(m mood)       { p.mood.Store(int32(m)) }
func (p *proxy) is(m mood) bool   { return mood(p.mood.Load()) == m }
func (p *proxy) once(m mood) bool { return p.mood.CompareAndSwap(int32(m), int32(honest)) }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(server, client, false) })
		p.wg.Go(func() { p.copy(client, server, true) })
	}
}

func (p *proxy) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		data := buffer[:n]
		if answers && bytes.Contains(data, []byte(`"seq":`)) {
			if p.once(cut) {
				return
			}
			if p.once(swallow) {
				continue
			}
		}
		if p.is(mute) {
			continue
		}
		if _, err := to.Write(data); err != nil {
			return
		}
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}
