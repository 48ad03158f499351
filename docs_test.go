// Package orderpaid_test checks what belongs to no single package: the
// documentation, and the shape of the tree.
package orderpaid_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"orderpaid/tools/doccheck"
)

func TestDocumentationNamesOnlyWhatExists(t *testing.T) {
	t.Parallel()
	findings, err := doccheck.Check(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

// quick says which of the README's commands a test can afford. The others are
// what .ci/run runs anyway.
func quick(command string) bool {
	return command == "make" || strings.HasSuffix(command, " --help") || strings.HasPrefix(command, "go doc ")
}

func TestDocumentationsQuickCommandsWork(t *testing.T) {
	t.Parallel()
	commands := map[string]bool{}
	for _, page := range []string{"README.md", "README.zh.md", "CONTRIBUTING.md"} {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(raw)) {
			commands[command] = quick(command)
		}
	}
	ran := 0
	for command, isQuick := range commands {
		if !isQuick {
			continue
		}
		ran++
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // the first one builds
		out, err := exec.CommandContext(ctx, "bash", "-c", command).CombinedOutput()
		cancel()
		if err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if ran == 0 {
		t.Errorf("none of %d commands is quick: the test has nothing to do", len(commands))
	}
}

var inlineCode = regexp.MustCompile("`([^`]+)`")

// commandsIn returns the lines of all ```sh blocks, without their comments,
// and what stands between backticks in the text.
func commandsIn(page string) (commands []string) {
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside:
			if command, _, _ := strings.Cut(line, " #"); strings.TrimSpace(command) != "" {
				commands = append(commands, strings.TrimSpace(command))
			}
		default:
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				commands = append(commands, m[1])
			}
		}
	}
	return commands
}
