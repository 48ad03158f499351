package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"

	"orderpaid/demo"
)

const phone = 390 // pixels

// Every page fits a phone, also with a title that runs from right to left, has
// no blank in 10 KB, and turns around what stands behind it.
func everyPageFitsAPhone(t *testing.T, shop *demo.Stack, order string) {
	addHostileTitle(t, shop)
	v := newVisit(t, shop.URL["console"], phone)
	v.open("/")
	v.requireFits()
	v.click(".item button") // the hostile one is the first
	v.open("/cart")
	v.waitFor("the title in the cart", "document.querySelector('main').innerText.includes('\u05e9')")
	v.requireFits()
	for _, path := range []string{"/orders", "/orders/" + order, "/account", "/search?q=tea", "/live", "/why", "/why?key=" + order, "/sign-in"} {
		v.open(path)
		v.requireFits()
	}
	v.click("button[value=alice]")
	for _, path := range []string{"/operate/", "/operate/?state=resolved", "/operate/desk", "/operate/desk?state=settled", "/operate/replays", "/operate/reconcile?window=15m", "/operate/actions"} {
		v.open(path)
		v.requireFits()
	}
}

// addHostileTitle puts a product before all others. The database would refuse
// its title; an older one may have let it in.
func addHostileTitle(t *testing.T, shop *demo.Stack) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), shop.DSN(demo.Database("order"), "shop_owner"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	title := "\u202e\u05e9\u05dc\u05d5\u05dd " + strings.Repeat("\u05e9", 5000) // 10 KB
	for _, sql := range []string{
		`ALTER TABLE product DROP CONSTRAINT product_title_en_check, DROP CONSTRAINT product_title_zh_check`,
		`INSERT INTO product VALUES ('AAA-RTL', '` + title + `', '` + title + `', 'x')`,
		`INSERT INTO product_price VALUES ('AAA-RTL', 'CNY', 100)`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// A person without a mouse buys and pays.
func everythingCanBeDoneByKeyboard(t *testing.T, shop *demo.Stack) {
	v := newVisit(t, shop.URL["console"], 1280)
	v.open("/")
	v.press("a.skip")
	v.press(".item:nth-child(2) form button")
	v.waitFor("something in the cart", "document.querySelector('.cart b')?.innerText == '1'")
	v.press("a.cart")
	v.waitFor("the cart", "location.pathname == '/cart'")
	v.press(".checkout .primary")
	v.waitFor("the provider's page", "location.pathname.startsWith('/pay/')")
	v.press("button[value=once]")
	v.waitFor("points and mail are done", bothDone("done"))
}

// press goes from one element to the next with the tabulator, until it comes to
// the one that matches, and presses Enter there. The element must show that it
// is the one.
func (v *visit) press(selector string) {
	v.t.Helper()
	v.waitFor(selector, fmt.Sprintf("document.querySelector(%q)", selector))
	at := fmt.Sprintf("document.activeElement.matches(%q)", selector)
	for n := 0; v.eval(at) != "true"; n++ {
		if n == 100 {
			v.t.Fatalf("%s: the tabulator does not lead to %s", v.where(), selector)
		}
		v.do(chromedp.KeyEvent(kb.Tab))
	}
	if got := v.eval("document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle != 'none'"); got != "true" {
		v.t.Errorf("%s: nobody sees that %s is the one", v.where(), selector)
	}
	v.do(chromedp.KeyEvent(kb.Enter))
}

// Pages are complete when they arrive; the script only keeps them fresh.
func nothingNeedsTheScript(t *testing.T, shop *demo.Stack, order string) {
	v := newVisit(t, shop.URL["console"], 1280)
	v.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	for path, part := range map[string]string{"/": ".item", "/live": "#b-paid", "/why?key=" + order: "#verdict", "/orders/" + order: "#progress"} {
		v.open(path)
		if v.text(part) == "" {
			t.Errorf("%s has no %s without the script", path, part)
		}
		v.waitFor("something is painted", "performance.getEntriesByName('first-contentful-paint').length == 1")
	}
	resp, err := http.Get(shop.URL["console"] + "/live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(body); got >= 60_000 {
		t.Errorf("the Live page has %d bytes, want fewer than 60000", got)
	}
}
