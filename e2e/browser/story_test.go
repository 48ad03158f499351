package browser

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"orderpaid/demo"
)

// The path that a person takes who has never seen the shop: buy, break, watch,
// ask why, mend. Each chapter goes on where the one before ended.
func TestAPersonBuysBreaksHealsAndLearnsWhy(t *testing.T) {
	t.Parallel()
	shop := startShop(t)
	v := newVisit(t, shop.URL["console"], 1280)

	first := buysAndIsCredited(v)
	findsTheOrder(v, first)
	twice := paysTwice(v)
	waiting := breaksTheRelays(v)
	asksWhy(v, waiting)
	heals(v, waiting)
	duplicatesEverything(v)
	mendsADeadLetter(v)
	decides(v, shop, twice)
	replays(v, first)
	reconciles(v)
	changesLanguage(v)

	t.Run("EveryPageFitsAPhone", func(t *testing.T) { everyPageFitsAPhone(t, shop, first) })
	t.Run("EverythingCanBeDoneByKeyboard", func(t *testing.T) { everythingCanBeDoneByKeyboard(t, shop) })
	t.Run("NothingNeedsTheScript", func(t *testing.T) { nothingNeedsTheScript(t, shop, first) })
}

// buy puts something into the cart and orders it. It returns the order's id.
func buy(v *visit) string {
	v.t.Helper()
	v.open("/")
	v.click(".item form button")
	v.waitFor("something in the cart", "document.querySelector('.cart b')?.innerText == '1'")
	v.open("/cart")
	v.click(".checkout .primary")
	v.waitFor("the provider's page", "location.pathname.startsWith('/pay/')")
	return strings.TrimPrefix(v.where(), "/pay/")
}

func bothDone(done string) string {
	return "['points','notification'].every(f => document.querySelector(`[data-follow-up=${f}]`)?.dataset.state == '" + done + "')"
}

func buysAndIsCredited(v *visit) (order string) {
	v.open("/")
	v.picture("shop")
	v.requireFits()
	order = buy(v)
	v.picture("pay")
	v.click("button[value=triple]") // one payment, announced three times at once
	v.waitFor("points and mail are done, by the stream alone", bothDone("done"))
	v.picture("order")

	v.open("/account")
	v.waitFor("a mail", "document.querySelectorAll('.mail').length == 1")
	if got := v.text(".figure b"); got == "0" || got == "" {
		v.t.Errorf("got %q points, want some", got)
	}
	v.unfold(".mail summary")
	if !strings.Contains(v.text(".mail"), order) {
		v.t.Error("the mail does not name the order")
	}
	v.picture("account")
	return order
}

// findsTheOrder searches it by words of three languages.
func findsTheOrder(v *visit, order string) {
	v.open("/orders/" + order)
	for _, lang := range []string{"en", "zh", "ja"} {
		v.open("/")
		word := v.eval("[...document.querySelectorAll('.item:first-child [lang=" + lang + "]')][0].innerText.slice(0, 8)")
		v.open("/search")
		v.enter("#q", word)
		v.click(".find button")
		v.waitFor("the order among the hits for "+word, "location.search.length > 3 && document.querySelector('main').innerHTML.includes('"+order+"')")
	}
	if !strings.Contains(v.text("main"), "Indexed as of") {
		v.t.Error("search does not say as of when")
	}
	v.picture("search")
	v.open("/orders")
	v.waitFor("the order in the list", "document.querySelector('.cards').innerHTML.includes('"+order+"')")
}

// paysTwice pays one order with two payments: one counts.
func paysTwice(v *visit) (order string) {
	order = buy(v)
	v.click("button[value=twice]")
	v.waitFor("points and mail are done", bothDone("done"))
	// The page has stopped to follow an order that is done, and the provider may
	// announce the second payment later than that.
	v.openUntil("/orders/"+order, "the second payment is kept and shown", "document.querySelector('#progress .notice.wait')")
	v.open("/why?key=" + order)
	v.waitFor("a verdict", "document.querySelector('#verdict')")
	v.open("/live")
	requireNothingWrong(v)
	return order
}

// requireNothingWrong fails the test if anything is lost or duplicated.
func requireNothingWrong(v *visit) {
	v.t.Helper()
	for _, id := range []string{"lost", "duplicated"} {
		if got := v.text("#b-" + id); got != "0" {
			v.t.Errorf("%s: got %s, want 0", id, got)
		}
	}
}

// breaksTheRelays pays an order that then cannot leave the database.
func breaksTheRelays(v *visit) (order string) {
	v.open("/live")
	v.click("form[action='/live/relays'] button")
	v.waitFor("the page says what is broken", "document.querySelector('#faults .notice')")
	order = buy(v)
	v.click("button[value=once]")
	v.waitFor("the order is paid and waits", bothDone("pending"))
	v.open("/live")
	v.waitFor("events wait in the outbox, by the stream alone", "Number(document.querySelector('#p-pending').innerText) > 0")
	requireNothingWrong(v)
	v.picture("live")
	return order
}

func asksWhy(v *visit, order string) {
	v.open("/why?key=" + order)
	v.waitFor("a verdict that says what it waits for", "/waiting to be sent on/.test(document.querySelector('#verdict')?.innerText)")
	v.picture("why")
	v.requireFits()
}

// heals waits for an order's page to change by itself.
func heals(v *visit, order string) {
	v.open("/live")
	v.click("form[action='/live/heal'] button")
	v.waitFor("nothing is broken any more", "!document.querySelector('#faults .notice')")
	v.open("/orders/" + order)
	v.waitFor("pending turns to done", bothDone("done"))
	v.open("/why?key=" + order)
	v.waitFor("the verdict is done", "document.querySelector('#verdict.done')")
}

func duplicatesEverything(v *visit) {
	v.open("/live")
	v.waitFor("the board has heard of the payment that was held up", "document.querySelector('#b-paid').innerText == '3'")
	paid := v.text("#b-paid")
	v.click("form[action='/live/duplicates'] button")
	v.waitFor("the auditor's rate jumps", "[...document.querySelectorAll('.lane')].some(l => parseFloat(l.querySelector('.flow b').innerText) > 1)")
	v.waitFor("and is calm again", "[...document.querySelectorAll('.lane')].every(l => / 0 wait/.test(l.innerText))")
	requireNothingWrong(v)
	if got := v.text("#b-paid"); got != paid {
		v.t.Errorf("paid: got %s, want %s as before", got, paid)
	}
}

var many = regexp.MustCompile(`"points_delta":\s*"many"`)

// mendsADeadLetter poisons an event, finds it, corrects it and sends it.
func mendsADeadLetter(v *visit) {
	v.open("/live")
	v.click("form[action='/live/poison'] button")
	v.waitFor("a dead letter on the live page", "/1 dead/.test(document.querySelector('#pipeline').innerText)")
	v.open("/sign-in")
	v.picture("sign-in")
	v.click("button[value=alice]")
	v.waitFor("the dead letter in the list", "document.querySelector('.letters tbody tr')")
	v.picture("dead-letters")
	v.click(".letters tbody a")
	v.waitFor("the dead letter", "document.querySelector('input[name=reason]')")
	v.enter("input[name=reason]", "found by a test")
	v.click("button[value=reveal]")
	v.waitFor("the event", "document.querySelector('textarea')")
	v.picture("dead-letter")
	event := v.eval("document.querySelector('textarea').value")
	if !many.MatchString(event) {
		v.t.Fatalf("this is not the poisoned event:\n%s", event)
	}
	v.enter("textarea", many.ReplaceAllString(event, `"points_delta": 12`))
	v.click("button[value=fix]")
	v.waitFor("it is settled", "document.querySelector('main .empty')")
	v.open("/operate/actions")
	v.waitFor("the audit log has it with its reason", "/alice.*corrected[^]*found by a test/.test(document.querySelector('.log').innerText)")
	v.picture("audit-log")
	v.open("/live")
	v.waitFor("no dead letter is left", "!/1 dead/.test(document.querySelector('#pipeline').innerText)")
	requireNothingWrong(v)
}

// decides settles the second payment of an order, and a mail of another one: it
// arrived twice under one Message-ID, and the server never said so.
func decides(v *visit, shop *demo.Stack, twice string) {
	mailServerHangsUp(v.t, shop, true)
	buy(v)
	v.click("button[value=once]")
	v.openUntil("/operate/desk", "a payment and a mail wait", "document.querySelector('.exception') && document.querySelector('.doubt')")
	mailServerHangsUp(v.t, shop, false)
	v.picture("to-decide")
	v.unfold(".doubt summary")
	v.enter(".doubt input[name=reason]", "it is in the log")
	v.click(".doubt button[value=happened]")
	v.waitFor("no mail is in doubt", "document.querySelector('.exception') && !document.querySelector('.doubt')")
	v.click(".exception a")
	v.waitFor("the payment, and of which order", "document.querySelector('.facts').innerHTML.includes('"+twice+"')")
	v.enter(".stack input[name=reason]", "paid back by hand")
	v.click(".stack button")
	v.waitFor("who settled it and why", "/alice.*settled.*paid back by hand/.test(document.querySelector('.log')?.innerText)")
	v.open("/operate/actions")
	for _, reason := range []string{"paid back by hand", "it is in the log"} {
		if !strings.Contains(v.text(".log"), reason) {
			v.t.Errorf("the audit log does not say %q", reason)
		}
	}
	v.open("/operate/desk")
	v.waitFor("nothing waits", "document.querySelector('main .empty')")
	v.open("/live")
	v.waitFor("the mail counts as sent", "document.querySelector('#b-mailed').innerText == document.querySelector('#b-paid').innerText")
	requireNothingWrong(v) // two copies of one mail are no second mail
}

// mailServerHangsUp makes the mail server take every mail and never say so.
func mailServerHangsUp(t *testing.T, shop *demo.Stack, yes bool) {
	t.Helper()
	faults := `{"faults":[]}`
	if yes {
		faults = `{"faults":[{"kind":"drop","keep":true}]}`
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, shop.URL["sim"]+"/faults", strings.NewReader(faults))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		t.Fatalf("break the mail server: %s", resp.Status)
	}
}

// replays brings an order's events to the points service again: no effect.
func replays(v *visit, order string) {
	v.open("/operate/replays")
	v.enter("select[name=consumer]", "points/points-awarder")
	v.enter("input[name=key]", order)
	v.enter(".stack input[name=reason]", "to see that nothing happens twice")
	v.click("button[value=plan]")
	v.waitFor("a preview", "/applied before/.test(document.querySelector('.plan')?.innerText)")
	v.click("button[value=create]")
	v.waitFor("the replay is in the list", "document.querySelector('.replay .state.ready')")
	v.enter(".replay input[name=reason]", "now")
	v.click(".replay button[value=start]")
	v.waitFor("it is running or done", "document.querySelector('.replay .state.running, .replay .state.done')")
	v.picture("replays")
}

func reconciles(v *visit) {
	v.open("/operate/reconcile?window=1h")
	v.waitFor("a report", "document.querySelector('#verdict')")
	v.picture("reconciliation")
}

func changesLanguage(v *visit) {
	v.open("/live")
	v.click("button[value=zh]")
	v.waitFor("the board in Chinese", "document.documentElement.lang == 'zh' && /已付款/.test(document.querySelector('.board').innerText)")
	v.picture("live-zh")
	v.open("/operate/desk?state=settled")
	v.waitFor("why the payment was kept, in Chinese", "/订单的第二笔付款/.test(document.querySelector('main').innerText)")
}
