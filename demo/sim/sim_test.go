package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/smtp"
	"testing"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A world is the whole package at work, with addresses of its own.
type world struct {
	httpURL  string
	smtpAddr string
}

// start runs everything until the test ends. shop is where payments are announced.
func start(t *testing.T, shop string) world {
	t.Helper()
	w, err := Listen(t.Context(), Config{
		HTTPAddr: "127.0.0.1:0", SMTPAddr: "127.0.0.1:0", KeepMails: 1000,
		WebhookURL: shop, WebhookSecret: testSecret,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the world ended with %v", err)
		}
	})
	return world{httpURL: "http://" + w.HTTPAddr(), smtpAddr: w.SMTPAddr()}
}

// call makes a request and decodes the answer into out, unless that is nil.
func (w world) call(t *testing.T, method, path string, body, out any) (status int) {
	t.Helper()
	var raw bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&raw).Encode(body); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.httpURL+path, &raw)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return resp.StatusCode
}

func (w world) mails(t *testing.T, query string) []Mail {
	t.Helper()
	var answer struct {
		Mails []Mail `json:"mails"`
	}
	w.call(t, "GET", "/mails?"+query, nil, &answer)
	return answer.Mails
}

func (w world) setFaults(t *testing.T, list ...Fault) {
	t.Helper()
	if status := w.call(t, "PUT", "/faults", faultList{list}, nil); status != http.StatusOK {
		t.Fatalf("setting faults: status %d", status)
	}
}

// send delivers a mail and returns what the server said about it.
func (w world) send(t *testing.T, to, id, text string) error {
	t.Helper()
	message := fmt.Sprintf("Message-ID: <%s>\r\nSubject: =?utf-8?q?=E6=94=AF=E4=BB=98?=\r\n"+
		"Content-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n", id, text)
	return smtp.SendMail(w.smtpAddr, nil, "shop@shop.example", []string{to}, []byte(message))
}

func openBox(t *testing.T, path string, keep int) *mailbox {
	t.Helper()
	box, err := openMailbox(path, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(box.close)
	return box
}
