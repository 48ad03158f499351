package opsapi

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// How much of a document a mask shows.
const (
	maskDepth    = 32
	maskElements = 20
)

// plainKey is a name that a programmer has given. Others may be data, such as
// the mail address in a map by mail address.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// mask returns how a document is made, without any of its values: enough to see
// a missing field or a wrong type, and nothing about a customer. It returns
// nothing for what is not JSON.
func mask(payload []byte) json.RawMessage {
	var v any
	if json.Unmarshal(payload, &v) != nil {
		return nil
	}
	masked, err := json.Marshal(maskValue(v, 0))
	if err != nil {
		return nil // strings and containers of them: it does not happen
	}
	return masked
}

func maskValue(v any, depth int) any {
	if depth > maskDepth {
		return "(deeper)"
	}
	switch v := v.(type) {
	case map[string]any:
		return maskObject(v, depth)
	case []any:
		return maskArray(v, depth)
	case string:
		return "(string)"
	case float64:
		return "(number)"
	case bool:
		return "(boolean)"
	default:
		return nil
	}
}

func maskObject(object map[string]any, depth int) map[string]any {
	masked := make(map[string]any, len(object))
	hidden := 0
	for key, value := range object {
		if !plainKey.MatchString(key) {
			hidden++
			key = fmt.Sprintf("(key %d)", hidden)
		}
		masked[key] = maskValue(value, depth+1)
	}
	return masked
}

func maskArray(array []any, depth int) []any {
	masked := make([]any, 0, min(len(array), maskElements+1))
	for i, value := range array {
		if i == maskElements {
			return append(masked, fmt.Sprintf("(%d more)", len(array)-maskElements))
		}
		masked = append(masked, maskValue(value, depth+1))
	}
	return masked
}
