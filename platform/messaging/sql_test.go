package messaging_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"orderpaid/platform/pgtest"
)

// whole matches what is a statement by itself; constants may also be parts of
// one, settings of a session, or have names to be filled in.
var whole = regexp.MustCompile(`^\s*(--[^\n]*\n\s*)*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`)

func TestEveryStatementOfMessagingFitsTheSchema(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "sql") {
				return true
			}
			for i, value := range spec.Values {
				literal, isLiteral := value.(*ast.BasicLit)
				if !isLiteral {
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err == nil && whole.MatchString(text) && !strings.Contains(text, "%s") && !strings.Contains(text, "%[1]s") {
					found[spec.Names[i].Name] = text
				}
			}
			return true
		})
	}
	if len(found) < 50 {
		t.Errorf("got %d statements, want nearly all of the package", len(found))
	}
	pgtest.PrepareAll(t, pgtest.New(t, "messaging"), found)
}
