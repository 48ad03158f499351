package console

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"orderpaid/platform/process"
)

// What a browser carries for its visitor. Nothing of it is believed: a cart is
// checked against the catalogue, a token by the services that it is shown to.

const (
	shopperCookie  = "shopper"
	cartCookie     = "cart"
	currencyCookie = "currency"
	ordersCookie   = "orders"
	checkoutCookie = "checkout"
	noticeCookie   = "notice"
	actorCookie    = "ops"
)

// A visitor is who looks at a page, as far as the browser says.
type visitor struct {
	Shopper   string
	CartCount int
	Actor     string // who acts on the operators' pages; empty if nobody has signed in
}

func visitorOf(r *http.Request) visitor {
	v := visitor{Shopper: shopperOf(r)}
	for _, line := range cartOf(r) {
		v.CartCount += line.Quantity
	}
	v.Actor, _ = actorOf(r)
	return v
}

func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	value, err := url.QueryUnescape(c.Value)
	if err != nil {
		return ""
	}
	return value
}

const month = 30 * 24 * 3600

// setCookie keeps a value with the browser. Strict would take a visitor's
// language and cart away on the first click from elsewhere.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: url.QueryEscape(value), Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: overTLS(r)})
}

func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// shopperOf returns the customer that the browser shops as, or "".
func shopperOf(r *http.Request) string {
	if id := cookie(r, shopperCookie); userIDPattern.MatchString(id) {
		return id
	}
	return ""
}

// shopper returns the customer, and makes one up for who has none yet.
func shopper(w http.ResponseWriter, r *http.Request) string {
	if id := shopperOf(r); id != "" {
		return id
	}
	id := "guest-" + strings.ToLower(rand.Text()[:8])
	setCookie(w, r, shopperCookie, id, month)
	return id
}

// A cartLine is one product in a cart.
type cartLine struct {
	SKU      string
	Quantity int
}

// cartOf reads what is in the cart: SKU*2.SKU*1. What cannot be right is left out.
func cartOf(r *http.Request) []cartLine {
	var lines []cartLine
	for _, entry := range strings.Split(cookie(r, cartCookie), ".") {
		sku, quantity, _ := strings.Cut(entry, "*")
		n, err := strconv.Atoi(quantity)
		if err == nil && skuPattern.MatchString(sku) && n >= 1 && n <= maxQuantity && len(lines) < maxLines {
			lines = append(lines, cartLine{sku, n})
		}
	}
	return lines
}

func setCart(w http.ResponseWriter, r *http.Request, lines []cartLine) {
	entries := make([]string, 0, len(lines))
	for _, line := range lines {
		entries = append(entries, line.SKU+"*"+strconv.Itoa(line.Quantity))
	}
	setCookie(w, r, cartCookie, strings.Join(entries, "."), month)
}

// setQuantity returns the lines with that many of a product; 0 takes it out.
func setQuantity(lines []cartLine, sku string, quantity int) []cartLine {
	var kept []cartLine
	found := false
	for _, line := range lines {
		if line.SKU == sku {
			line.Quantity, found = min(quantity, maxQuantity), true
		}
		if line.Quantity > 0 {
			kept = append(kept, line)
		}
	}
	if !found && quantity > 0 && len(kept) < maxLines {
		kept = append(kept, cartLine{sku, min(quantity, maxQuantity)})
	}
	return kept
}

func quantityOf(lines []cartLine, sku string) int {
	for _, line := range lines {
		if line.SKU == sku {
			return line.Quantity
		}
	}
	return 0
}

// keptOrders is how many of its own orders a browser remembers.
const keptOrders = 20

// ordersOf returns the orders that were placed with this browser, the newest
// first. The list is the browser's, so it is right the moment an order is
// placed; what each order says comes from the order service.
func ordersOf(r *http.Request) []string {
	var ids []string
	for _, id := range strings.Split(cookie(r, ordersCookie), ".") {
		if orderIDPattern.MatchString(id) && len(ids) < keptOrders {
			ids = append(ids, id)
		}
	}
	return ids
}

func rememberOrder(w http.ResponseWriter, r *http.Request, id string) {
	ids := append([]string{id}, ordersOf(r)...)
	setCookie(w, r, ordersCookie, strings.Join(ids[:min(len(ids), keptOrders)], "."), month)
}

// setNotice leaves a sentence for the next page, after a redirect.
func setNotice(w http.ResponseWriter, r *http.Request, notice string) {
	setCookie(w, r, noticeCookie, notice, 60)
}

func takeNotice(w http.ResponseWriter, r *http.Request) string {
	notice := cookie(r, noticeCookie)
	if notice != "" {
		setCookie(w, r, noticeCookie, "", -1)
	}
	return notice
}

// An Actor is a bearer whom a demo lets its visitors act as.
type Actor struct {
	Name, Role string
	token      process.Secret
}

// parseActors reads name:role:token entries. Errors never repeat a token.
func parseActors(text string) ([]Actor, error) {
	var actors []Actor
	for _, entry := range strings.Fields(text) {
		parts := strings.SplitN(entry, ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("demo actor %d is not name:role:token", len(actors)+1)
		}
		actors = append(actors, Actor{parts[0], parts[1], process.Secret(parts[2])})
	}
	return actors, nil
}

// actorOf returns who has signed in: a name for the page, and the token that
// the services are shown. They decide what it may do, and record its real name.
func actorOf(r *http.Request) (name string, token process.Secret) {
	name, value, found := strings.Cut(cookie(r, actorCookie), ":")
	if !found {
		return "", ""
	}
	return name, process.Secret(value)
}

// signIn keeps a token with the browser: not for scripts, not for requests
// that other sites set off, and gone when the browser closes.
func signIn(w http.ResponseWriter, r *http.Request, name string, token process.Secret) {
	http.SetCookie(w, &http.Cookie{Name: actorCookie, Value: url.QueryEscape(name + ":" + string(token)), Path: "/",
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: overTLS(r)})
}

// localPath returns where to go after a form, never away from this server.
// Browsers leave control characters out of addresses, and take a backslash for
// a slash: both could hide the two slashes before a foreign name.
func localPath(given string) string {
	if !strings.HasPrefix(given, "/") || strings.HasPrefix(given, "//") || strings.ContainsFunc(given, func(r rune) bool { return r == '\\' || r < ' ' }) {
		return "/"
	}
	return given
}
