// Package contracts holds the only thing that services share: data. For each
// kind of event there are two files, <Kind>.schema.json, a JSON Schema 2020-12
// of the event's data, and <Kind>.example.json, one golden instance of it.
// envelope.schema.json describes what is around every event's data;
// asyncapi.yaml says who sends and who receives what, and where.
//
// There are no Go types here on purpose. The producer and each consumer keep
// their own struct with the fields that they use, and test it against the
// example. So a consumer can be written in any language, deploys on its own,
// and keeps working when the producer adds a field.
//
// A file that has shipped is never edited except to add optional fields. A
// breaking change is a new version beside the old one: OrderPaid.v2.
package contracts

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

const (
	schemaSuffix  = ".schema.json"
	exampleSuffix = ".example.json"
)

// Schema returns the JSON Schema of the data of a kind, for example
// "OrderPaid.v1". The name "envelope" gives the schema of the envelope.
func Schema(kind string) ([]byte, error) { return read(kind, schemaSuffix) }

// Example returns the golden instance of the data of a kind.
func Example(kind string) ([]byte, error) { return read(kind, exampleSuffix) }

// Kinds returns the names of all kinds that have an example, sorted.
func Kinds() []string {
	names, err := fs.Glob(files, "*"+exampleSuffix)
	if err != nil {
		panic(err) // only a malformed pattern, which is a constant
	}
	kinds := make([]string, len(names))
	for i, name := range names {
		kinds[i] = strings.TrimSuffix(name, exampleSuffix)
	}
	slices.Sort(kinds)
	return kinds
}

func read(kind, suffix string) ([]byte, error) {
	raw, err := files.ReadFile(kind + suffix)
	if err != nil {
		return nil, fmt.Errorf("contract of %q: %w", kind, err)
	}
	return raw, nil
}
