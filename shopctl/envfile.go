package shopctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// EnvFile is the environment variable that names a file with more of them.
const EnvFile = "SHOPCTL_ENV_FILE"

// demoFile is where the demo writes what it started. It is looked for in the
// working directory and above.
const demoFile = ".orderpaid/shopctl.env"

// LoadEnv sets the environment variables that a file lists, one NAME=VALUE a
// line, unless they are set already: the file that SHOPCTL_ENV_FILE names, or
// .orderpaid/shopctl.env here or in a folder above. It returns which file that
// was, or nothing if there is none.
//
// A file that somebody else owns, or may write to, is refused: it could send
// this user's token to any address.
func LoadEnv() (file string, err error) {
	file = os.Getenv(EnvFile)
	if file == "" {
		if file = findUp(demoFile); file == "" {
			return "", nil
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return file, fmt.Errorf("settings: %w", err)
	}
	if err := trusted(info); err != nil {
		return file, fmt.Errorf("settings %s: %w", file, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return file, fmt.Errorf("settings: %w", err)
	}
	for n, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found || name == "" {
			return file, fmt.Errorf("settings %s, line %d: not NAME=VALUE", file, n+1) // without its text: it may be a secret
		}
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return file, fmt.Errorf("settings %s, line %d: %w", file, n+1, err)
		}
	}
	return file, nil
}

func findUp(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

func trusted(info os.FileInfo) error {
	stat, known := info.Sys().(*syscall.Stat_t)
	if known && int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
		return errors.New("it belongs to another user")
	}
	if info.Mode().Perm()&0o022 != 0 {
		return errors.New("others may write to it: chmod go-w")
	}
	return nil
}
