package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orderpaid/platform/faults"
	"orderpaid/platform/leaktest"
	"orderpaid/platform/messaging"
)

// TestMain doubles as the victim: with these variables set, this binary sends
// mail until it is killed instead of running tests.
func TestMain(m *testing.M) {
	if os.Getenv(victimDSN) != "" {
		fmt.Fprintln(os.Stderr, sendUntilKilled(context.Background()))
		os.Exit(1)
	}
	leaktest.Main(m)
}

const (
	victimDSN  = "NOTIFY_TEST_VICTIM_DSN"
	victimSMTP = "NOTIFY_TEST_VICTIM_SMTP"
)

// victimLease is short, so that the tests need not wait long for its end.
const victimLease = 500 * time.Millisecond

func sendUntilKilled(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv(victimDSN))
	if err != nil {
		return err
	}
	outbox, err := messaging.NewOutbox(messaging.OutboxConfig{Producer: "notify"})
	if err != nil {
		return err
	}
	mailer, err := NewMailer(MailerConfig{Addr: os.Getenv(victimSMTP), Timeout: victimLease - time.Millisecond})
	if err != nil {
		return err
	}
	d, err := NewDelivery(pool, outbox, mailer, DeliveryConfig{
		From: "orders@shop.example", ContactDomain: "customers.example", Lease: victimLease,
	})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// C25: a sender that dies leaves a mail about which nobody knows, like an
// answer that is lost.
func TestACrashWhileSendingCostsAtMostOneRepetition(t *testing.T) {
	t.Parallel()
	for point, mails := range map[string]int{"delivery.before_send": 1, "delivery.after_answer": 2} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			order := newOrder()
			f.deliver(t, paid(t, order, "u1"))
			f.killSenderAt(t, point)
			if got := f.notification(t, "u1"); got.State != Sending {
				t.Errorf("after the crash: got %+v, want sending", got)
			}

			f.startSending(t, quick(3, 1))
			if got := f.requireState(t, "u1", Sent); got.Unknowns != 1 || got.Attempts != 0 {
				t.Errorf("got %+v", got)
			}
			received := f.server.mails(t, order)
			if len(received) != mails {
				t.Fatalf("the customer has %d mails, want %d", len(received), mails)
			}
			for _, m := range received {
				if m.MessageID != received[0].MessageID {
					t.Errorf("the mails have different ids: %s and %s", m.MessageID, received[0].MessageID)
				}
			}
		})
	}
}

// killSenderAt runs a sender in a process of its own that dies at the point.
func (f fixture) killSenderAt(t *testing.T, point string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	victim := exec.CommandContext(ctx, os.Args[0])
	victim.Env = append(os.Environ(), faults.Env+"="+point,
		victimDSN+"="+f.pool.Config().ConnString(), victimSMTP+"="+f.server.smtpAddr)
	output, err := victim.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Fatalf("the sender ended with %v: %s", err, output)
	}
}
