package sim

import (
	"context"
	"fmt"
	"net"
	"net/http"

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
	Issuer        string         `help:"Name under which tokens for customers are issued. Anybody gets one for any user: a demo." default:"http://127.0.0.1:8089" env:"SIM_ISSUER"`
	Audience      string         `help:"For whom they are issued." default:"orderpaid" env:"SIM_AUDIENCE"`
	WebhookSecret process.Secret `help:"What callbacks are signed with: whsec_ and base64." required:"" env:"SIM_WEBHOOK_SECRET"`
}

// Run serves until ctx is done.
func Run(ctx context.Context, cfg Config) error {
	w, err := Listen(ctx, cfg)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// A World is the outside with its addresses taken: what was asked for as port
// 0 has a number, and who connects before Run waits.
type World struct {
	box      *mailbox
	mail     *mailServer
	provider *provider
	handler  http.Handler

	smtpListener, httpListener net.Listener
}

// Listen opens what Run serves. Run closes it.
func Listen(ctx context.Context, cfg Config) (*World, error) {
	if cfg.KeepMails < 1 {
		return nil, fmt.Errorf("keep-mails is %d, must be at least 1", cfg.KeepMails)
	}
	signer, err := newSigner(string(cfg.WebhookSecret))
	if err != nil {
		return nil, err
	}
	issuer, err := newIssuer(cfg.Issuer, cfg.Audience)
	if err != nil {
		return nil, err
	}
	box, err := openMailbox(cfg.MailFile, cfg.KeepMails)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	smtpListener, err := lc.Listen(ctx, "tcp", cfg.SMTPAddr)
	if err != nil {
		box.close()
		return nil, fmt.Errorf("listen for mail on %s: %w", cfg.SMTPAddr, err)
	}
	httpListener, err := lc.Listen(ctx, "tcp", cfg.HTTPAddr)
	if err != nil {
		box.close()
		smtpListener.Close()
		return nil, fmt.Errorf("listen for requests on %s: %w", cfg.HTTPAddr, err)
	}
	faults, provider := newFaults(), newProvider(cfg.WebhookURL, signer)
	outside := &api{box: box, faults: faults, provider: provider, issuer: issuer}
	return &World{box, newMailServer(box, faults), provider, outside.routes(), smtpListener, httpListener}, nil
}

// SMTPAddr returns where mail is accepted.
func (w *World) SMTPAddr() string { return w.smtpListener.Addr().String() }

// HTTPAddr returns where everything else is asked for.
func (w *World) HTTPAddr() string { return w.httpListener.Addr().String() }

// Run serves until ctx is done.
func (w *World) Run(ctx context.Context) error {
	defer w.box.close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.mail.run(ctx, w.smtpListener) })
	g.Go(func() error { return w.provider.run(ctx) })
	g.Go(func() error { return httpserver.Serve(ctx, w.httpListener, w.handler) })
	return g.Wait()
}
