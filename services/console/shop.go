package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"
)

// The pages of customers. Each asks the service that owns what it shows: an
// order comes from the order service, so it is right while search lags behind.

var (
	userIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	skuPattern    = regexp.MustCompile(`^[A-Z0-9][A-Z0-9-]{0,63}$`)
)

// Titles of a product by language.
type Titles map[string]string

// A Title is a text with the language that it is in, for the browser's fonts,
// voices and direction.
type Title struct{ Text, Lang string }

func (t Titles) in(language string) Title {
	for _, lang := range []string{language, "en", "zh", "ja"} {
		if t[lang] != "" {
			return Title{t[lang], lang}
		}
	}
	return Title{"?", "en"}
}

type product struct {
	SKU    string  `json:"sku"`
	Titles Titles  `json:"titles"`
	Prices []Money `json:"prices"`
}

func (p product) price(currency string) (Money, bool) {
	for _, price := range p.Prices {
		if price.Currency == currency {
			return price, true
		}
	}
	return Money{}, false
}

var currencies = []string{"CNY", "USD", "JPY"}

func currencyOf(r *http.Request) string {
	if c := cookie(r, currencyCookie); c == "USD" || c == "JPY" || c == "CNY" {
		return c
	}
	return "CNY"
}

const shelf = 24 // products on one page

// getShop shows the catalogue.
func (s *Service) getShop(w http.ResponseWriter, r *http.Request) {
	shopper(w, r)
	var data struct {
		Items []struct {
			product
			Price Money
		}
		Currency   string
		Currencies []string
		Next       string
		First      bool
		Silent     bool
	}
	data.Currency, data.Currencies, data.First = currencyOf(r), currencies, r.URL.Query().Get("cursor") == ""
	var page struct {
		Items      []product `json:"items"`
		NextCursor string    `json:"next_cursor"`
	}
	err := s.order.get(r.Context(), "/v1/products?"+url.Values{"limit": {strconv.Itoa(shelf)}, "cursor": {r.URL.Query().Get("cursor")}}.Encode(), &page)
	data.Silent, data.Next = err != nil, page.NextCursor
	for _, p := range page.Items {
		if price, sold := p.price(data.Currency); sold {
			data.Items = append(data.Items, struct {
				product
				Price Money
			}{p, price})
		}
	}
	s.render(w, r, http.StatusOK, "shop", view{Nav: "shop", Data: data})
}

// postCurrency changes the currency that prices are shown and paid in.
func (s *Service) postCurrency(w http.ResponseWriter, r *http.Request) {
	for _, c := range currencies {
		if c == r.PostFormValue("currency") {
			setCookie(w, r, currencyCookie, c, month)
		}
	}
	http.Redirect(w, r, localPath(r.PostFormValue("to")), http.StatusSeeOther)
}

// postCart puts a product into the cart, or sets how many there are.
func (s *Service) postCart(w http.ResponseWriter, r *http.Request) {
	sku, lines := r.PostFormValue("sku"), cartOf(r)
	quantity := quantityOf(lines, sku) + 1
	if given := r.PostFormValue("quantity"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 {
			n = quantityOf(lines, sku)
		}
		quantity = n
	}
	if skuPattern.MatchString(sku) {
		kept := setQuantity(lines, sku, quantity)
		setCart(w, r, kept)
		switch got := quantityOf(kept, sku); {
		case got == quantity:
		case got == 0:
			setNotice(w, r, s.text(r, "cart.full", maxLines))
		default:
			setNotice(w, r, s.text(r, "cart.most", maxQuantity))
		}
	}
	http.Redirect(w, r, localPath(r.PostFormValue("to")), http.StatusSeeOther)
}

// A basket is a cart with prices. They are what the customer agrees to: the
// order service refuses the order if they have changed.
type basket struct {
	Lines []basketLine
	Total Money
	Key   string // the Idempotency-Key of the order that the button places; empty: there is no button
	Wrong string
}

type basketLine struct {
	product
	Quantity    int
	Price, Line Money
	Gone        bool // not sold, or not in this currency
	Silent      bool // the order service does not say
}

func (s *Service) basketOf(ctx context.Context, lines []cartLine, currency string) basket {
	b := basket{Lines: make([]basketLine, len(lines))}
	var wg sync.WaitGroup
	for i, line := range lines {
		wg.Go(func() {
			entry := &b.Lines[i]
			entry.Quantity = line.Quantity
			entry.SKU = line.SKU
			err := s.order.get(ctx, "/v1/products"+path(line.SKU), &entry.product)
			var sold bool
			entry.Price, sold = entry.price(currency)
			var no *refusal
			entry.Silent = err != nil && !errors.As(err, &no)
			entry.Gone = !entry.Silent && !sold
		})
	}
	wg.Wait()
	for i := range b.Lines {
		line := &b.Lines[i]
		if line.Gone || line.Silent {
			continue
		}
		line.Line = Money{Currency: line.Price.Currency, Exponent: line.Price.Exponent}.Plus(line.Price, int64(line.Quantity))
		b.Total.Currency, b.Total.Exponent = line.Line.Currency, line.Line.Exponent
		b.Total = b.Total.Plus(line.Line, 1)
	}
	return b
}

func (s *Service) showCart(w http.ResponseWriter, r *http.Request, status int, key, wrong string) {
	b := s.basketOf(r.Context(), cartOf(r), currencyOf(r))
	b.Key, b.Wrong = key, wrong
	s.render(w, r, status, "cart", view{Nav: "cart", Data: b})
}

// said puts what a service refused, or that it is silent, into a sentence.
func (s *Service) said(r *http.Request, err error) string {
	var no *refusal
	if errors.As(err, &no) {
		return s.text(r, "refused", no.Detail)
	}
	return s.text(r, "no_answer")
}
