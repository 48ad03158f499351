package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"orderpaid/platform/pgserver"
	"orderpaid/platform/service/servicetest"
)

// A natsServer is a nats-server in a process of its own, which tests kill,
// freeze, and rob of its files.
type natsServer struct {
	dir, addr, monitor string
	group              int // process group of the server and of its guard
	fileLimit          int // largest file that it can write, in units of 512 bytes; 0: no limit
	done               chan struct{}
}

// natsConfig has the one line that makes an acknowledgement mean something.
const natsConfig = `server_name: faults
listen: %s
http: %s
jetstream {
  store_dir: %q
  sync_interval: always
}
`

// startNATS starts a server that ends with its test.
func startNATS(t *testing.T) *natsServer {
	t.Helper()
	s := &natsServer{dir: t.TempDir(), addr: servicetest.FreeAddr(t), monitor: servicetest.FreeAddr(t)}
	config := fmt.Sprintf(natsConfig, s.addr, s.monitor, s.store())
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	t.Cleanup(func() { s.signal(t, syscall.SIGKILL); <-s.done })
	return s
}

func (s *natsServer) url() string   { return "nats://" + s.addr }
func (s *natsServer) store() string { return filepath.Join(s.dir, "store") }

// start runs the server below a guard, which ends it when this process ends,
// and returns when its streams are recovered.
func (s *natsServer) start(t *testing.T) {
	t.Helper()
	command := []string{filepath.Join(bin, "demo"), "guard", "--", filepath.Join(bin, "nats-server"), "--config", filepath.Join(s.dir, "nats.conf")}
	if s.fileLimit > 0 {
		command = append([]string{"sh", "-c", `ulimit -f "$0" && exec "$@"`, strconv.Itoa(s.fileLimit)}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), markEnv+"="+mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := cmd.StdinPipe(); err != nil { // held open until this process ends
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.group, s.done = cmd.Process.Pid, make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(s.done)
	}()
	eventually(t, 30*time.Second, "nats-server is healthy", func() bool {
		resp, err := http.Get("http://" + s.monitor + "/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// kill ends the server as a crash would, and returns when it is gone.
func (s *natsServer) kill(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGKILL)
	<-s.done
	eventually(t, 10*time.Second, "its port is free", func() bool {
		conn, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

func (s *natsServer) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-s.group, sig); err != nil && err != syscall.ESRCH {
		t.Errorf("%s to nats-server: %v", sig, err)
	}
}

// signalPostgres reaches the server and all of its processes: those of a
// frozen server keep their connections, take bytes, and answer nothing.
func signalPostgres(t *testing.T, srv *pgserver.Server, sig syscall.Signal) {
	t.Helper()
	pids := []int{srv.PID()}
	if err := syscall.Kill(srv.PID(), sig); err != nil { // first, so that it makes no others
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == strconv.Itoa(srv.PID()) {
			pid, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	for _, pid := range pids[1:] {
		if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
			t.Errorf("%s to %d: %v", sig, pid, err)
		}
	}
}

// A link is a network between two processes that can be cut.
type link struct {
	listener net.Listener
	network  string // of what it leads to
	addr     string

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// newLink leads from a port of its own to addr, until the test ends.
func newLink(t *testing.T, network, addr string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, network: network, addr: addr, conns: map[net.Conn]bool{}}
	l.wg.Go(l.accept)
	t.Cleanup(func() { listener.Close(); l.cut(); l.wg.Wait() })
	return l
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(l.network, l.addr)
		if err != nil {
			near.Close()
			continue
		}
		l.mu.Lock()
		l.conns[near], l.conns[far] = true, true
		l.mu.Unlock()
		l.wg.Go(func() { l.copy(near, far) })
		l.wg.Go(func() { l.copy(far, near) })
	}
}

func (l *link) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from) // its end, whatever the reason, ends both
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range []net.Conn{to, from} {
		conn.Close()
		delete(l.conns, conn)
	}
}

// cut ends every connection at once, in the middle of whatever it carries.
func (l *link) cut() (cut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.Close()
	}
	return len(l.conns) / 2
}

// through returns a database's address by way of a link to its server's
// socket.
func through(t *testing.T, dsn string) (*link, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(t, "unix", filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port")))
	u.Host, u.RawQuery = l.listener.Addr().String(), "sslmode=disable"
	return l, u.String()
}
