package deploy_test

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"orderpaid/demo"
	"orderpaid/platform/messaging"
	"orderpaid/platform/messaging/natsbroker"
	"orderpaid/platform/natstest"
	"orderpaid/shopctl"
)

// patience bounds what should happen at once, on a machine that is busy.
const patience = 30 * time.Second

// A fleet is a server with the configuration of this folder, and the secrets
// of all its clients.
type fleet struct {
	*natstest.Server
	secrets string
}

func newFleet(t *testing.T) fleet {
	t.Helper()
	dir := t.TempDir()
	if err := (demo.SecretsCommand{Dir: filepath.Join(dir, "secrets")}).Run(io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "secrets", "nats"), filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "nats"), os.DirFS("nats")); err != nil {
		t.Fatal(err)
	}
	conf, err := server.ProcessConfigFile(filepath.Join(dir, "nats", "nats-server.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if !conf.SyncAlways {
		t.Error("the configuration does not sync always")
	}
	s := natstest.New(t, func(o *server.Options) {
		conf.StoreDir, conf.JetStreamMaxStore, conf.JetStreamMaxMemory = o.StoreDir, o.JetStreamMaxStore, o.JetStreamMaxMemory
		conf.Host, conf.Port, conf.HTTPHost, conf.HTTPPort = o.Host, o.Port, "", 0
		conf.NoSigs, conf.NoLog = true, true
		*o = *conf
	})
	return fleet{s, filepath.Join(dir, "secrets")}
}

// url is the address with which a process proves who it is.
func (f fleet) url(process string) string {
	return f.URL() + "?nkey=" + filepath.Join(f.secrets, process, "nats.nk")
}

// processes, and the name under which each is known to NATS.
var users = map[string]string{
	"topology": "topology", "relay": "relay", "order": "order", "points": "points", "notify": "notify",
	"search": "search", "console": "console", "check": "audit", "partner": "partner",
}

var durables = map[string]string{
	"order": "order-followups", "points": "points-awarder", "notify": "notify-sender", "search": "search-indexer",
	"console": "console-auditor",
}

func TestEachProcessCanDoItsOwnJob(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	if err := natsbroker.EnsureTopology(t.Context(), f.url("topology"), shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
	if changes, err := natsbroker.PlanTopology(t.Context(), f.url("topology"), shopctl.Topology()); err != nil || len(changes) > 0 {
		t.Fatalf("a second plan: %v, %v; want none", changes, err)
	}
	relay := f.broker(t, "relay")
	var list []messaging.Message
	for _, sub := range shopctl.Topology().Subscriptions {
		for _, kind := range sub.Kinds {
			list = append(list, messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: kind.Aggregate + "/1", Subject: kind.Subject(1), Data: []byte("{}")})
		}
	}
	for _, receipt := range relay.Publish(t.Context(), list) {
		if receipt.Err != nil {
			t.Fatal(receipt.Err)
		}
	}
	for _, sub := range shopctl.Topology().Subscriptions {
		source, err := f.broker(t, owner(sub.Durable)).Subscribe(t.Context(), sub)
		if err != nil {
			t.Fatalf("%s: %v", sub.Durable, err)
		}
		group, err := source.Fetch(t.Context(), 1)
		if err != nil || len(group) != 1 {
			t.Fatalf("%s fetched %d messages, %v; want 1", sub.Durable, len(group), err)
		}
		if err := group[0].Ack(); err != nil {
			t.Errorf("%s: %v", sub.Durable, err)
		}
		source.Close()
	}
	audit, err := demo.AuditStream(t.Context(), f.url("check"))
	if err != nil || audit.Messages != len(list) {
		t.Errorf("the audit read %+v, %v; want %d messages", audit, err, len(list))
	}
}

func TestRelayHearsTheHintsOfItsOutboxes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	for _, service := range []string{"order", "points", "notify"} {
		relay := f.broker(t, "relay")
		hints, stop, err := relay.OnWake(service)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for _, b := range []*natsbroker.Broker{relay, f.broker(t, service)} {
			if err := b.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.Wake(service)(messaging.AllShards)
		}
		select {
		case <-hints:
		case <-time.After(patience):
			t.Errorf("no hint of %s came", service)
		}
	}
}

func owner(durable string) string {
	for process, name := range durables {
		if name == durable {
			return process
		}
	}
	return "nobody"
}

func (f fleet) broker(t *testing.T, process string) *natsbroker.Broker {
	t.Helper()
	b, err := natsbroker.Connect(t.Context(), natsbroker.Config{
		URL: f.url(process), Name: users[process], Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// rights are everything that anybody might want to do, and who may.
func rights() (publish, subscribe map[string][]string) {
	everyone := slices.Sorted(maps.Keys(users))
	publish = map[string][]string{
		"shop.events.order.OrderPaid.v1.p07":      {"relay"},
		"shop.events.points.PointsAwarded.v1.p07": {"relay"},
		"shop.events.notify.MailSent.v1.p07":      {"relay"},
		"shop.events.search.Anything.v1.p07":      nil,
		"$JS.API.STREAM.CREATE.EVENTS":            {"topology"},
		"$JS.API.STREAM.UPDATE.EVENTS":            {"topology"},
		"$JS.API.STREAM.CREATE.OTHER":             nil,
		"$JS.API.STREAM.DELETE.EVENTS":            nil,
		"$JS.API.STREAM.PURGE.EVENTS":             nil,
		"$JS.API.STREAM.MSG.DELETE.EVENTS":        nil,
		"$JS.API.STREAM.MSG.GET.EVENTS":           nil,
		"$JS.API.STREAM.SNAPSHOT.EVENTS":          nil,
		"$JS.API.STREAM.INFO.EVENTS":              {"check", "console", "topology"},
		"$JS.API.DIRECT.GET.EVENTS":               {"check", "console", "search"},
		"$JS.API.CONSUMER.CREATE.EVENTS.spy":      {"topology"},
		"$JS.API.CONSUMER.LIST.EVENTS":            {"check", "console"},
		"$SYS.REQ.SERVER.PING":                    nil,
		"partner.anything":                        nil,
	}
	for process, durable := range durables {
		publish["$JS.API.CONSUMER.MSG.NEXT.EVENTS."+durable] = []string{process}
		publish["$JS.API.CONSUMER.INFO.EVENTS."+durable] = []string{process, "check", "topology"}
		publish["$JS.API.CONSUMER.DELETE.EVENTS."+durable] = []string{"topology"}
		publish["$JS.API.CONSUMER.PAUSE.EVENTS."+durable] = nil
		publish["$JS.ACK.EVENTS."+durable+".1.1.1.1.0"] = []string{process}
		publish["$JS.ACK._.hash.EVENTS."+durable+".1.1.1.1.0"] = []string{process}
	}
	for _, service := range []string{"order", "points", "notify"} {
		publish["shop.wake."+service] = []string{service}
	}
	maps.Copy(publish, replayRights())
	subscribe = map[string][]string{
		"shop.events.>":                         nil,
		"shop.events.order.OrderPaid.v1.*":      nil,
		"from.shop.events.order.OrderPaid.v1.*": {"partner"},
		"_INBOX.>":                              nil,
		">":                                     nil,
		"$JS.ACK.>":                             nil,
		"$JS.EVENT.ADVISORY.>":                  {"check"},
		"shop.wake.order":                       {"relay"},
		"shop.wake.>":                           nil,
	}
	for _, process := range everyone {
		if process != "partner" {
			subscribe["_INBOX_"+users[process]+".>"] = []string{process}
		}
	}
	return publish, subscribe
}

// replayRights: a replay reads its own service's kinds, under its own name.
func replayRights() map[string][]string {
	rights := map[string][]string{}
	subs := shopctl.Topology().Subscriptions
	for _, sub := range subs {
		process, name := owner(sub.Durable), natsbroker.ReplayConsumer(sub.Durable)
		rights["$JS.API.CONSUMER.MSG.NEXT.EVENTS."+name] = []string{process}
		rights["$JS.API.CONSUMER.DELETE.EVENTS."+name] = []string{process}
		for _, other := range subs {
			for _, kind := range other.Kinds {
				create := "$JS.API.CONSUMER.CREATE.EVENTS." + name + "." + kind.Filter()
				rights[create] = []string{"topology"}
				if slices.Contains(sub.Kinds, kind) {
					rights[create] = []string{"topology", process}
				}
			}
		}
		rights["$JS.API.CONSUMER.CREATE.EVENTS."+name] = []string{"topology"} // it could have any filter
		rights["$JS.API.CONSUMER.CREATE.EVENTS."+name+".shop.events.>"] = []string{"topology"}
	}
	return rights
}

func TestNobodyCanDoMoreThanHisJob(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	publish, subscribe := rights()
	for process := range users {
		t.Run(process, func(t *testing.T) {
			t.Parallel()
			for subject, allowed := range publish {
				got := f.permitted(t, process, func(nc *nats.Conn) error { return nc.Publish(subject, nil) })
				if want := slices.Contains(allowed, process); got != want {
					t.Errorf("%s may publish to %s: %v, want %v", process, subject, got, want)
				}
			}
			for subject, allowed := range subscribe {
				got := f.permitted(t, process, func(nc *nats.Conn) error { _, err := nc.SubscribeSync(subject); return err })
				if want := slices.Contains(allowed, process); got != want {
					t.Errorf("%s may listen to %s: %v, want %v", process, subject, got, want)
				}
			}
		})
	}
}

// permitted reports whether the server lets a process do something. The refusal
// comes on its own and before the answer to the flush.
func (f fleet) permitted(t *testing.T, process string, do func(*nats.Conn) error) bool {
	t.Helper()
	refusals := make(chan error, 1)
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(f.secrets, process, "nats.nk"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(f.URL(), seed, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case refusals <- err:
		default:
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(nc), nc.FlushTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	refused := nc.LastError() // the handler runs in a goroutine of its own; this is set before
	nc.Close()
	if refused != nil && !errors.Is(refused, nats.ErrPermissionViolation) {
		t.Fatalf("%s: %v", process, refused)
	}
	return refused == nil
}

func TestWithoutAKeyNobodyGetsIn(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t), newFleet(t)
	foreign := "?nkey=" + filepath.Join(other.secrets, "relay", "nats.nk")
	for name, url := range map[string]string{"no key": f.URL(), "a key of another shop": f.URL() + foreign} {
		if nc, err := natsbroker.Dial(t.Context(), url, "relay"); err == nil {
			nc.Close()
			t.Errorf("%s: connected", name)
		} else if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want %v", name, err, nats.ErrAuthorization)
		}
	}
}

func TestPartnerHearsOfPaymentsAndOfNothingElse(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	if err := natsbroker.EnsureTopology(t.Context(), f.url("topology"), shopctl.Topology()); err != nil {
		t.Fatal(err)
	}
	seed, err := nats.NkeyOptionFromSeed(filepath.Join(f.secrets, "partner", "nats.nk"))
	if err != nil {
		t.Fatal(err)
	}
	partner, err := nats.Connect(f.URL(), seed)
	if err != nil {
		t.Fatal(err)
	}
	defer partner.Close()
	heard, err := partner.SubscribeSync("from.shop.events.order.OrderPaid.v1.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := partner.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	relay := f.broker(t, "relay")
	for _, kind := range []string{"OrderCreated", "OrderPaid", "OrderCreated"} {
		m := messaging.Message{ID: uuid.Must(uuid.NewV7()), Key: "order/1", Subject: "shop.events.order." + kind + ".v1.p01", Data: []byte(`{}`)}
		if r := relay.Publish(t.Context(), []messaging.Message{m}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	msg, err := heard.NextMsg(patience)
	if err != nil || !strings.Contains(msg.Subject, "OrderPaid") {
		t.Fatalf("the partner heard %v, %v; want OrderPaid", msg, err)
	}
	if err := partner.FlushTimeout(patience); err != nil { // whatever else was on its way has come
		t.Fatal(err)
	}
	if n, _, _ := heard.Pending(); n != 0 {
		t.Errorf("the partner heard %d more messages, want none", n)
	}
}
