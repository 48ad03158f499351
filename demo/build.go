package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds every program of the checkout at root into bin, and nats-server
// from its own module, at the version that go.mod requires for the tests. With
// nothing changed it takes a second.
func Build(ctx context.Context, root, bin string) error {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	// -buildvcs=false: a commit that changes no code would link everything
	// anew, and git refuses to read a checkout that belongs to somebody else.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", bin+string(filepath.Separator),
		"./cmd/...", "github.com/nats-io/nats-server/v2")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// FindRoot returns the checkout that the working directory is in.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(raw), "module orderpaid\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("not inside a checkout of orderpaid")
		}
		dir = parent
	}
}
