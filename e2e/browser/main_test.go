// Package browser walks through the console as a person does: a real headless
// Chromium, a fresh profile, the whole shop running.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"orderpaid/demo"
)

var (
	root     string // of the checkout
	bin      string // the programs under test
	chromium string // the browser
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if root, err = demo.FindRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if chromium, err = findChromium(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = filepath.Join(root, ".orderpaid", "bin")
	if err := demo.Build(context.Background(), root, bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// findChromium looks where distributions put it. Without a browser these tests
// fail and are not skipped: green would mean nothing.
func findChromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no Chromium is installed: apt-get install chromium, or leave these tests out with go test $(go list ./... | grep -v e2e/browser)")
}

// startShop starts the whole shop with data of its own.
func startShop(t *testing.T) *demo.Stack {
	t.Helper()
	stack, err := demo.Up(t.Context(), demo.StackConfig{Root: root, Bin: bin, Dir: t.TempDir(), AnyPorts: true, Unsafe: true,
		Notice: func(line string) { fmt.Println("shop:", line) }})
	t.Cleanup(func() {
		if err := stack.Down(); err != nil {
			t.Errorf("stop the shop: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return stack
}
