package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/demo"
	"orderpaid/platform/pgserver"
	"orderpaid/platform/pgtest"
)

// The disk under the orders is full while customers pay. They are told to try
// again, everything else waits, and when there is room it all goes on by
// itself.
func TestAFullDiskUnderPostgreSQLRefusesOrdersAndLosesNothing(t *testing.T) {
	t.Parallel()
	disk := mountSmallDisk(t)
	srv := pgtest.Durable(t)
	shop := newCounter(t, onServer(t, srv, "order", "TABLESPACE "+tablespaceOn(t, srv, disk)), onServer(t, srv, "points"))

	begun, placed := make(chan struct{}), make(chan []demo.Entry, 1)
	go func() {
		defer close(placed)
		placed <- shop.load(t, demo.LoadConfig{Orders: 300, Rate: 60, Progress: func(done int) {
			if done == 50 {
				close(begun)
			}
		}})
	}()
	select {
	case <-begun:
	case <-placed:
		t.FailNow() // it has said why
	}
	filler := fill(t, disk)
	refused := 0
	eventually(t, time.Minute, "orders are refused for a while", func() bool {
		status, code := placeOne(t, shop.api)
		if status == http.StatusServiceUnavailable && code == "unavailable" {
			refused++
		} else if status != http.StatusCreated {
			t.Fatalf("an order is answered with %d %q, want 201, or 503 and that it is to be tried again", status, code)
		}
		return refused == 20
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	room := time.Now()
	entries, ok := <-placed
	if !ok {
		t.FailNow() // it has said why
	}
	shop.settled(t)
	requireAnswered(t, shop, entries, room)
}

// requireAnswered fails the test unless every order that the client was
// promised is there, and its events are where they belong, each once.
func requireAnswered(t *testing.T, shop *counter, entries []demo.Entry, since time.Time) {
	t.Helper()
	accepted := map[string]bool{}
	for _, e := range entries {
		if e.Op == demo.OpCreate && e.Outcome == demo.Accepted {
			accepted[e.OrderID] = true
		}
	}
	if len(accepted) != 300 {
		t.Errorf("%d orders were accepted in the end, want all 300", len(accepted))
	}
	lost := 0
	for id := range accepted {
		if count(t, shop.orderDB, `SELECT count(*) FROM message_outbox WHERE aggregate_id = $1 AND kind = 'OrderCreated.v1'`, id) != 1 {
			lost++
		}
	}
	report(t, since, lost, count(t, shop.pointsDB, `SELECT count(*) - count(DISTINCT (order_id, kind, refund_id)) FROM points_entry`))
	if lost > 0 {
		t.Errorf("%d of the orders that were accepted have no event, or two", lost)
	}
	requireStored(t, shop.natsURL, shop.events(t))
	for what, sql := range map[string]string{
		"orders without their event": `SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM message_outbox m WHERE m.aggregate_id = o.order_id AND m.kind = 'OrderCreated.v1')`,
		"events given up":            `SELECT count(*) FROM message_outbox_held WHERE state = 'failed'`,
		"unresolved failures":        `SELECT count(*) FROM message_failure WHERE state <> 'resolved'`,
	} {
		if got := count(t, shop.orderDB, sql); got != 0 {
			t.Errorf("%d %s, want none", got, what)
		}
	}
}

// mountSmallDisk returns a folder on a file system of its own, which has room
// for a database and not for much more.
func mountSmallDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "orderpaid-disk-")
	if err != nil {
		t.Fatal(err)
	}
	asRoot := func(command ...string) error {
		if os.Geteuid() != 0 {
			command = append([]string{"sudo", "--non-interactive"}, command...)
		}
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	if err := asRoot("mount", "-t", "tmpfs", "-o", "size=64m,mode=0777", "tmpfs", dir); err != nil {
		t.Fatalf("a full disk needs a small one: run this test on Linux as root, or as somebody who may sudo; %v", err)
	}
	t.Cleanup(func() { // after the server has stopped, which is begun later
		if err := errors.Join(asRoot("umount", dir), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil && os.Geteuid() == 0 { // PostgreSQL's user must be able to enter it
		t.Fatal(err)
	}
	return dir
}

// tablespaceOn makes a tablespace on the disk and returns its name.
func tablespaceOn(t *testing.T, srv *pgserver.Server, disk string) string {
	t.Helper()
	location := filepath.Join(disk, "tablespace")
	if err := os.Mkdir(location, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(srv.Dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(location, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
	if _, err := openPool(t, srv.DSN("postgres")).Exec(t.Context(), `CREATE TABLESPACE small LOCATION '`+location+`'`); err != nil {
		t.Fatal(err)
	}
	return "small"
}

// fill writes to the disk until it takes no more, and returns the file.
func fill(t *testing.T, disk string) string {
	t.Helper()
	file, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 8<<10); err == nil; {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return file.Name()
}

// placeOne asks for one order, once, and returns the answer's status and code.
func placeOne(t *testing.T, api string) (status int, code string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/v1/orders",
		strings.NewReader(`{"user_id":"u-probe","currency":"CNY","items":[{"sku":"`+firstSKU(t, api)+`","quantity":1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", rand.Text())
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct {
		Code string `json:"code"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, problem.Code
}

// The server that holds both databases dies under load and does not come back.
// Its standby is promoted; the processes find it by themselves. What was
// committed had been on both.
func TestAStandbyPromotedUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	srv := pgtest.Durable(t)
	l := newLine(t, srv)
	standby, err := srv.StartStandby(t.Context(), pgserver.Config{Dir: filepath.Join(srv.Dir, "standby"), SharedBuffersMB: 16, MaxConnections: 50})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	database := func(pool *pgxpool.Pool) string { return pool.Config().ConnConfig.Database }
	l.orderDSN, l.pointsDSN = pgserver.EitherDSN(srv, standby, database(l.orderDB)), pgserver.EitherDSN(srv, standby, database(l.pointsDB))
	l.underway(t, 1000)
	srv.Kill()
	died := time.Now()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.orderDB, l.pointsDB = openPool(t, standby.DSN(database(l.orderDB))), openPool(t, standby.DSN(database(l.pointsDB)))
	l.pay(t, 100)
	l.requireOnce(t, died)
}

// C53: the database's clock is ten minutes behind the services', jumps ahead
// by five while leases run, and is ten minutes ahead in the end. Leases and due
// times are the database's, so nothing is done twice or forgotten, and nothing
// has an age below zero.
func TestClocksThatDifferLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	clock := newClock(t)
	clock.set(t, -10*time.Minute)
	srv := pgtest.Start(t, pgserver.Config{SharedBuffersMB: 16, MaxConnections: 50, Env: clock.env()})
	l := newLine(t, srv)
	awaitApart(t, l.orderDB, -10*time.Minute)
	processes := []*child{l.relay(t, 1), l.relay(t, 2), l.points(t, 1)}
	l.pay(t, 300)
	l.settled(t)
	requireNoNegativeAges(t, processes)
	for _, offset := range []time.Duration{-5 * time.Minute, 10 * time.Minute} {
		l.pay(t, 600)
		clock.set(t, offset) // in the middle of it
		awaitApart(t, l.orderDB, offset)
		l.pay(t, 300)
		l.settled(t)
		requireNoNegativeAges(t, processes)
	}
	l.requireOnce(t, time.Now())
}

// A clock is what a server believes the time to be: an offset in a file, which
// a library reads that stands between the server and the kernel.
type clock struct{ library, file string }

func newClock(t *testing.T) *clock {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/opt/homebrew/lib/faketime/libfaketime.1.dylib"} {
		files, _ := filepath.Glob(pattern) // the only error is a bad pattern
		found = append(found, files...)
	}
	if len(found) == 0 {
		t.Fatal("libfaketime is missing, which lets PostgreSQL's clock be wrong; Debian, Ubuntu: apt-get install libfaketime")
	}
	dir, err := os.MkdirTemp("", "orderpaid-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL's user must be able to enter it
		t.Fatal(err)
	}
	return &clock{found[0], filepath.Join(dir, "offset")}
}

// env is for the server. Its own waiting is measured by the monotonic clock,
// which stays right.
func (c *clock) env() []string {
	return []string{"LD_PRELOAD=" + c.library, "DYLD_INSERT_LIBRARIES=" + c.library, "FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
}

// set moves the clock away from the true one. The server's processes see it
// within a second.
func (c *clock) set(t *testing.T, offset time.Duration) {
	t.Helper()
	if err := os.WriteFile(c.file+".new", fmt.Appendf(nil, "%+d\n", int(offset.Seconds())), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		t.Fatal(err)
	}
}

// awaitApart returns when the database's clock is off by so much.
func awaitApart(t *testing.T, pool *pgxpool.Pool, want time.Duration) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("the database's clock is %v ahead", want), func() bool {
		var now time.Time
		if err := pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
			t.Fatal(err)
		}
		return (time.Until(now) - want).Abs() < time.Minute
	})
}

var negativeAge = regexp.MustCompile(`(?m)^\w*(age|lag|seconds)\w*(\{[^}]*\})? -[0-9.e+]+$`)

// requireNoNegativeAges looks at what the processes say of themselves.
func requireNoNegativeAges(t *testing.T, processes []*child) {
	t.Helper()
	for _, c := range processes {
		if bad := negativeAge.FindString(c.metrics(t)); bad != "" {
			t.Errorf("%s says: %s", c.name, bad)
		}
	}
}
