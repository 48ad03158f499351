package shopctl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The file is found from a folder below, what is set already wins, and a file
// that others may write to is refused: it could send a token anywhere.
func TestSettingsComeFromTheDemosFileUnlessOthersMayWriteToIt(t *testing.T) {
	t.Parallel()
	binary := builtOnce(t)
	dir := t.TempDir()
	below := filepath.Join(dir, "services", "points")
	file := filepath.Join(dir, ".orderpaid", "shopctl.env")
	for _, folder := range []string{below, filepath.Dir(file)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(env ...string) string {
		cmd := exec.Command(binary+"/shopctl", "why", "ord_1")
		cmd.Dir = below
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
		out, _ := cmd.CombinedOutput() // nobody answers: it fails in each case, and says why
		return string(out)
	}
	requireIn(t, run(), "it is not known whom to ask", "scripts/demo")

	write := func(text string, mode os.FileMode) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("# a remark\n\nSHOPCTL_SERVICES=points=http://127.0.0.1:1\nSHOPCTL_TOKEN=secret-secret-secret\n", 0o600)
	requireIn(t, run(), "! points: does not answer")
	requireIn(t, run("SHOPCTL_SERVICES=search=http://127.0.0.1:1"), "! search: does not answer")
	requireIn(t, run("SHOPCTL_ENV_FILE=/nowhere/at.all"), "no such file")

	write("SHOPCTL_TOKEN=secret-secret-secret\n", 0o666)
	if out := run(); !strings.Contains(out, "others may write to it") || strings.Contains(out, "secret-secret") {
		t.Errorf("got %q, want a refusal", out)
	}
	write("SHOPCTL_TOKEN secret-secret-secret\n", 0o600)
	if out := run(); !strings.Contains(out, "line 1: not NAME=VALUE") || strings.Contains(out, "secret-secret") {
		t.Errorf("got %q, want a refusal that repeats nothing", out)
	}
}

// What cannot be understood names the help of the command that was meant.
func TestAnUnknownFlagPointsToTheHelpOfItsCommand(t *testing.T) {
	t.Parallel()
	binary := builtOnce(t)
	for line, want := range map[string]string{
		"--nonsense":             "see shopctl --help",
		"outbox nonsense":        "see shopctl outbox --help",
		"outbox list --nonsense": "see shopctl outbox list --help",
	} {
		cmd := exec.Command(binary+"/shopctl", strings.Fields(line)...)
		out, _ := cmd.CombinedOutput() // the exit code is looked at below
		if got := cmd.ProcessState.ExitCode(); got != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", line, got, out, want)
		}
	}
	help, err := exec.Command(binary+"/shopctl", "reconcile", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	requireIn(t, string(help), "\n    shopctl reconcile --since 2h\n    shopctl reconcile --repair --dry-run\n")
}
