package contracts

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestEveryExampleIsValid(t *testing.T) {
	t.Parallel()
	kinds := Kinds()
	if len(kinds) == 0 {
		t.Fatal("there are no examples")
	}
	for _, kind := range kinds {
		if err := compile(t, kind).Validate(document(t, kind)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestEverySchemaHasAnExample(t *testing.T) {
	t.Parallel()
	names, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range names {
		kind, isSchema := strings.CutSuffix(entry.Name(), schemaSuffix)
		if isSchema && kind != "envelope" && !slices.Contains(Kinds(), kind) {
			t.Errorf("%s has a schema and no example", kind)
		}
	}
}

// A producer may add fields at any time: no schema may close itself to them.
func TestUnknownFieldsAreAllowed(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		doc := document(t, kind)
		doc["added_later"] = "x"
		if err := compile(t, kind).Validate(doc); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A consumer may rely on every field that the schema requires.
func TestRequiredFieldsAreRequired(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		raw, err := Schema(kind)
		if err != nil {
			t.Fatal(err)
		}
		var schema struct{ Required []string }
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for _, field := range schema.Required {
			doc := document(t, kind)
			delete(doc, field)
			if err := compile(t, kind).Validate(doc); err == nil {
				t.Errorf("%s without %s: got no error", kind, field)
			}
		}
	}
}

// C06: an amount is a whole number of minor units.
func TestFractionsOfMinorUnitsAreNoAmounts(t *testing.T) {
	t.Parallel()
	for _, amount := range []any{json.Number("755.5"), "75500", json.Number("-1"), json.Number("9223372036854775808")} {
		doc := document(t, "OrderPaid.v1")
		doc["total"].(map[string]any)["amount"] = amount
		if err := compile(t, "OrderPaid.v1").Validate(doc); err == nil {
			t.Errorf("amount %v: got no error", amount)
		}
	}
}

func TestAsyncAPINamesEveryKindAndOnlyFilesThatExist(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds() {
		name, version, _ := strings.Cut(kind, ".")
		if !regexp.MustCompile(`(?m)^    address: shop\.events\.[a-z]+\.` + name + `\.` + version + `\.\{shard\}$`).Match(raw) {
			t.Errorf("%s has no channel", kind)
		}
		if !regexp.MustCompile(`(?m)^  [a-z]+\.send\.` + name + `:$`).Match(raw) {
			t.Errorf("nobody sends %s", kind)
		}
	}
	for _, ref := range regexp.MustCompile(`\$ref: \./([A-Za-z0-9.]+)`).FindAllSubmatch(raw, -1) {
		if _, err := files.ReadFile(string(ref[1])); err != nil {
			t.Errorf("asyncapi.yaml refers to %s: %v", ref[1], err)
		}
	}
	for _, ref := range regexp.MustCompile(`\$ref: "#/([a-z]+)/([A-Za-z]+)`).FindAllSubmatch(raw, -1) {
		if section := string(ref[1]); section == "channels" && !bytes.Contains(raw, []byte("\n  "+string(ref[2])+":\n    address:")) {
			t.Errorf("asyncapi.yaml refers to channel %s, which it does not have", ref[2])
		}
	}
}

func document(t *testing.T, kind string) map[string]any {
	t.Helper()
	raw, err := Example(kind)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, raw).(map[string]any)
}

func parse(t *testing.T, raw []byte) any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func compile(t *testing.T, kind string) *jsonschema.Schema {
	t.Helper()
	raw, err := Schema(kind)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(kind, parse(t, raw)); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(kind)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return schema
}
