package process

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// readSecretFiles lets a secret come from a file: where DATABASE_URL would be
// read, DATABASE_URL_FILE may name a file that holds it, as with the official
// images of databases. An environment can be read by whoever may inspect a
// container; a file has an owner and a mode. The variable itself wins, and so
// does a flag that reads the file in its own way.
func readSecretFiles(flags []*kong.Flag) error {
	taken := map[string]bool{}
	for _, flag := range flags {
		for _, name := range flag.Envs {
			taken[name] = true
		}
	}
	for _, flag := range flags {
		if !holdsSecret(flag.Target.Type()) {
			continue
		}
		for _, name := range flag.Envs {
			file := os.Getenv(name + "_FILE")
			if file == "" || os.Getenv(name) != "" || taken[name+"_FILE"] {
				continue
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("%s_FILE: %w", name, err)
			}
			value := strings.TrimSpace(string(raw))
			if value == "" {
				return fmt.Errorf("%s_FILE: %s is empty", name, file)
			}
			if err := os.Setenv(name, value); err != nil { // of this process: the environment that others see stays as it was
				return fmt.Errorf("%s_FILE: %w", name, err)
			}
		}
	}
	return nil
}

func holdsSecret(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		t = t.Elem()
	}
	return t == reflect.TypeFor[Secret]()
}
