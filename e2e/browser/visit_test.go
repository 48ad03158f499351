package browser

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// A visit is one person with a browser that has never been used before.
type visit struct {
	t    *testing.T
	ctx  context.Context
	base string

	pictures string // where pictures of this visit go

	mu      sync.Mutex
	console []string // errors that the browser reported
	foreign []string // requests to anywhere else
}

const patience = 60 * time.Second // of a person who waits for a page to change

// newVisit opens a browser of the given width.
func newVisit(t *testing.T, base string, width int64) *visit {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.UserDataDir(t.TempDir()))
	ctx, stopBrowser := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	v := &visit{t: t, ctx: ctx, base: base, pictures: t.TempDir()}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 860)); err != nil { // the browser lives as long as the context it is started with
		t.Fatalf("start the browser: %v", err)
	}
	messages := chromedp.Console(ctx)
	requests := chromedp.Events(ctx, network.RequestWillBeSent)
	var watching sync.WaitGroup
	watching.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == "error" || m.Type == "warning" || m.Type == chromedp.ConsoleException {
				v.note(&v.console, fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
			}
		}
	})
	watching.Go(func() {
		for r, err := range requests {
			if err != nil {
				return
			}
			if !strings.HasPrefix(r.Request.URL, base) {
				v.note(&v.foreign, r.Request.URL)
			}
		}
	})
	t.Cleanup(func() {
		closeTab()
		stopBrowser()
		watching.Wait()
		for _, complaint := range v.console {
			t.Errorf("the browser complained: %s", complaint)
		}
		for _, url := range v.foreign {
			t.Errorf("a page asked somebody else: %s", url)
		}
	})
	return v
}

func (v *visit) note(list *[]string, what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*list = append(*list, what)
}

// do makes the browser do something, and fails the test if it cannot.
func (v *visit) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		v.t.Fatalf("at %s: %v", v.where(), err)
	}
}

func (v *visit) open(path string) { v.t.Helper(); v.do(chromedp.Navigate(v.base + path)) }

// click clicks a link or a button that leads to another page, as soon as it
// can be seen, and waits for that page. What is asked next would otherwise be
// answered by the old one, and the next page would cut this one off.
func (v *visit) click(selector string) {
	v.t.Helper()
	v.eval("String(window.left = true)")
	v.unfold(selector)
	v.waitFor("the page behind "+selector, "!window.left")
}

// unfold clicks what changes the page that is shown.
func (v *visit) unfold(selector string) { v.t.Helper(); v.do(chromedp.Click(chromedp.CSS(selector))) }

// enter puts text into a field in the place of what is there.
func (v *visit) enter(selector, text string) {
	v.t.Helper()
	v.do(chromedp.SetValue(chromedp.CSS(selector), text))
}

// waitFor polls until the expression is true on the page that is shown then.
func (v *visit) waitFor(what, expression string) {
	v.t.Helper()
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(v.ctx, 5*time.Second)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("document.readyState == 'complete' && !!("+expression+")"))
		cancel()
		if last = err; err == nil && ok { // an error is a page that is just being replaced
			return
		}
	}
	v.t.Fatalf("not within %s: %s; at %s, last error %v, the page says:\n%s", patience, what, v.where(), last, v.text("main"))
}

// openUntil opens a page again and again until the expression is true on it.
func (v *visit) openUntil(path, what, expression string) {
	v.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(500 * time.Millisecond) {
		v.open(path)
		if v.eval("!!("+expression+")") == "true" {
			return
		}
	}
	v.t.Fatalf("not within %s: %s; %s says:\n%s", patience, what, path, v.text("main"))
}

// text returns what a person reads in the first element that matches.
func (v *visit) text(selector string) string {
	v.t.Helper()
	return v.eval(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

func (v *visit) eval(expression string) string {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		v.t.Fatalf("evaluate %s: %v", expression, err)
	}
	return result
}

func (v *visit) where() string {
	url, err := chromedp.Run(v.ctx, chromedp.Location())
	if err != nil {
		return "no page"
	}
	return strings.TrimPrefix(url, v.base)
}

// requireFits fails the test if the page is wider than the window.
func (v *visit) requireFits() {
	v.t.Helper()
	if got := v.eval("document.documentElement.scrollWidth - innerWidth"); got != "0" {
		v.t.Errorf("%s is %s pixels wider than the window", v.where(), got)
	}
}

// picturesEnv asks for new pictures in docs/images, as in
//
//	ORDERPAID_PICTURES=1 go test ./e2e/browser
//
// Otherwise they go where the test's own files go: a test run must leave a
// clean checkout clean.
const picturesEnv = "ORDERPAID_PICTURES"

// picture writes what is seen, as small as PNG allows.
func (v *visit) picture(name string) {
	v.t.Helper()
	dir := v.pictures
	if os.Getenv(picturesEnv) != "" {
		dir = filepath.Join(root, "docs", "images")
	}
	raw, err := chromedp.Run(v.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		v.t.Fatalf("picture of %s: %v", v.where(), err)
	}
	decoded, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		v.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(decoded)); err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), small.Bytes(), 0o644); err != nil {
		v.t.Fatal(err)
	}
}
