package sim

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"orderpaid/platform/httpserver"
	"orderpaid/platform/process"
)

// Config configures the world outside.
type Config struct {
	HTTPAddr      string         `name:"http-addr" help:"Where mails are read, faults are set and payments are made. Keep it private: it has no password." default:"127.0.0.1:8089" env:"SIM_HTTP_ADDR"`
	SMTPAddr      string         `name:"smtp-addr" help:"Where mail is accepted." default:"127.0.0.1:2525" env:"SIM_SMTP_ADDR"`
	MailFile      string         `help:"File that keeps the mails over a restart. Without it they are lost then." env:"SIM_MAIL_FILE"`
	KeepMails     int            `help:"Mails that can be asked for; the file keeps all." default:"200000" env:"SIM_KEEP_MAILS"`
	WebhookURL    string         `name:"webhook-url" help:"Where payments are announced: the order service's webhook." default:"http://127.0.0.1:8080/v1/webhooks/payments" env:"SIM_WEBHOOK_URL"`
	WebhookSecret process.Secret `help:"What callbacks are signed with: whsec_ and base64." required:"" env:"SIM_WEBHOOK_SECRET"`
}

// Run serves until ctx is done.
func Run(ctx context.Context, cfg Config) error {
	if cfg.KeepMails < 1 {
		return fmt.Errorf("keep-mails is %d, must be at least 1", cfg.KeepMails)
	}
	signer, err := newSigner(string(cfg.WebhookSecret))
	if err != nil {
		return err
	}
	box, err := openMailbox(cfg.MailFile, cfg.KeepMails)
	if err != nil {
		return err
	}
	defer box.close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.SMTPAddr)
	if err != nil {
		return fmt.Errorf("listen for mail on %s: %w", cfg.SMTPAddr, err)
	}

	faults := newFaults()
	mail := newMailServer(box, faults)
	provider := newProvider(cfg.WebhookURL, signer)
	outside := &api{box: box, faults: faults, provider: provider}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return mail.run(ctx, listener) })
	g.Go(func() error { return provider.run(ctx) })
	g.Go(func() error { return httpserver.Run(ctx, cfg.HTTPAddr, outside.routes()) })
	return g.Wait()
}
