package alarms

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"orderpaid/demo"
)

// refundInParts has the provider announce refunds of an order, one after the
// other: two events each.
func refundInParts(t *testing.T, shop *demo.Stack, order string, parts int) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(shop.WebhookSecret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	payment := ""
	eventually(t, "the order is paid", func() bool {
		payment = text(t, shop, "order", `SELECT payment_id FROM payment WHERE order_id = $1`, order)
		return payment != ""
	})
	for n := range parts {
		announce(t, shop, key, fmt.Sprintf(`{"type":"payment.refunded","timestamp":%q,"data":{"order_id":%q,"payment_id":%q,"refund_id":"re_%s_%d","amount":100,"currency":"CNY"}}`,
			time.Now().UTC().Format(time.RFC3339Nano), order, payment, order, n))
	}
}

// announce sends a callback of the payment provider, signed with its key.
func announce(t *testing.T, shop *demo.Stack, key []byte, body string) {
	t.Helper()
	id, at := rand.Text(), time.Now().Unix()
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", id, at, body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, shop.URL["order"]+"/v1/webhooks/payments", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", fmt.Sprint(at))
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body) // only for the message
	if resp.StatusCode/100 != 2 {
		t.Fatalf("announce a refund: %s %s", resp.Status, answer)
	}
}

var verdictOnPage = regexp.MustCompile(`(?s)id="verdict">(.*?)</p>`)

// An explanation is what the test reads of shopctl's answer.
type explanation struct {
	Trails []struct {
		Verdict struct{ EN string }
		Events  []json.RawMessage
	}
	Silent []struct{ Service string }
}

// silent reports whether nobody is silent but the one who is frozen.
func (e explanation) silent(frozen string) bool {
	if frozen == "" {
		return len(e.Silent) == 0
	}
	return len(e.Silent) == 1 && e.Silent[0].Service == frozen
}

// quick is the longest that an answer may take. The best of many counts: this
// machine may be busy with something else.
const (
	quick    = 200 * time.Millisecond
	ownStart = 100 * time.Millisecond // of the program that asks
)

// whyIsQuickAndTheSameEverywhere asks the page and shopctl about an order with
// fifty events. Both say the same, within 200 ms, also while a service is
// frozen: then they name it, and nobody else.
func (n *night) whyIsQuickAndTheSameEverywhere(order, frozen string) {
	n.t.Helper()
	var told explanation
	var shown, verdict string
	pageTook, shopctlTook := time.Hour, time.Hour
	eventually(n.t, "the page and shopctl say the same within 200 ms about "+order, func() bool {
		pageTook = min(pageTook, took(func() { shown = page(n.t, n.shop.URL["console"]+"/why?key="+order) }))
		var answer []byte
		shopctlTook = min(shopctlTook, took(func() { answer = n.ask("why", "--json", order) }))
		told = explanation{}
		if err := json.Unmarshal(answer, &told); err != nil {
			n.t.Fatal(err)
		}
		if found := verdictOnPage.FindStringSubmatch(shown); found != nil {
			verdict = html.UnescapeString(found[1])
		}
		return told.silent(frozen) && len(told.Trails) == 1 && verdict == told.Trails[0].Verdict.EN &&
			pageTook < quick && shopctlTook < quick+ownStart
	})
	if got := len(told.Trails[0].Events); got < 50 && frozen == "" {
		n.t.Errorf("got %d events, want 50 at least", got)
	}
	if frozen != "" && !strings.Contains(shown, frozen+" does not answer") {
		n.t.Errorf("the page does not name %s", frozen)
	}
	n.t.Logf("why, %q frozen: page %v, shopctl %v with its own start", frozen, pageTook, shopctlTook)
}

func took(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// ask returns what shopctl prints.
func (n *night) ask(args ...string) []byte {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), filepath.Join(bin(n.p.root), "shopctl"), args...)
	cmd.Env = shopctlEnv(n.dir)
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("shopctl %s: %v", strings.Join(args, " "), err)
	}
	return out
}
