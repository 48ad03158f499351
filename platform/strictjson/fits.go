package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// maxDepth bounds how deep a document may nest: the walk below is recursive,
// and a megabyte of opening brackets must not become a gigabyte of stack.
const maxDepth = 64

// fits walks a well-formed document along the type of v and finds what
// encoding/json would let pass: unknown, misspelt and repeated names, and null
// for values that cannot be null. What it finds has a path and an offset.
func fits(raw []byte, v any) error {
	w := walk{dec: json.NewDecoder(bytes.NewReader(raw)), raw: raw}
	return w.value(reflect.TypeOf(v).Elem(), "", 0)
}

type walk struct {
	dec *json.Decoder
	raw []byte
}

// value checks the next value of the document against t. A nil t is a place
// that takes anything; only repeated names are wrong there.
func (w *walk) value(t reflect.Type, path string, depth int) error {
	if depth > maxDepth {
		return w.refuse(ErrTooDeep, path)
	}
	next := w.peek()
	if next == 'n' && t != nil && !nullable(t) {
		return w.refuse(ErrType, path)
	}
	for t != nil && t.Kind() == reflect.Pointer && next != 'n' {
		t = t.Elem()
	}
	if t == rawMessage {
		t = nil
	}
	switch {
	case t != nil && readsItself(t):
		return w.leaf(t, path)
	case next == '{':
		return w.object(t, path, depth)
	case next == '[':
		return w.array(t, path, depth)
	default:
		return w.leaf(t, path)
	}
}

// object checks each member of an object: for a struct against its fields, for
// a map against its element type.
func (w *walk) object(t reflect.Type, path string, depth int) error {
	var fields map[string]reflect.Type
	var element reflect.Type
	if t != nil {
		switch t.Kind() {
		case reflect.Struct:
			fields = fieldsOf(t)
		case reflect.Map:
			element = t.Elem()
		case reflect.Interface:
		default:
			return w.refuse(ErrType, path)
		}
	}
	w.skip() // {
	seen := map[string]bool{}
	for w.dec.More() {
		before := w.dec.InputOffset()
		token, err := w.dec.Token()
		if err != nil {
			return w.refuse(ErrMalformed, path)
		}
		name := token.(string) // the document is well-formed: a member starts with its name
		member := join(path, name)
		if seen[name] {
			return &Error{Reason: ErrDuplicateField, Field: member, Offset: before}
		}
		seen[name] = true
		memberType, known := fields[name]
		if fields == nil {
			memberType = element
		} else if !known {
			return &Error{Reason: ErrUnknownField, Field: member, Offset: before}
		}
		if err := w.value(memberType, member, depth+1); err != nil {
			return err
		}
	}
	w.skip() // }
	return nil
}

func (w *walk) array(t reflect.Type, path string, depth int) error {
	var element reflect.Type
	if t != nil {
		switch t.Kind() {
		case reflect.Slice, reflect.Array:
			element = t.Elem()
		case reflect.Interface:
		default:
			return w.refuse(ErrType, path)
		}
	}
	w.skip() // [
	for i := 0; w.dec.More(); i++ {
		if err := w.value(element, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
			return err
		}
	}
	w.skip() // ]
	return nil
}

// leaf decodes one value for the sake of its error: this way the error gets a
// path, which encoding/json gives only sometimes.
func (w *walk) leaf(t reflect.Type, path string) error {
	if t == nil {
		t = rawMessage
	}
	offset := w.dec.InputOffset()
	if err := w.dec.Decode(reflect.New(t).Interface()); err != nil {
		return &Error{Reason: ErrType, Field: path, Offset: offset}
	}
	return nil
}

// peek returns the first byte of the next value.
func (w *walk) peek() byte {
	rest := bytes.TrimLeft(w.raw[w.dec.InputOffset():], " \t\r\n,:")
	if len(rest) == 0 {
		return 0
	}
	return rest[0]
}

// skip passes over a bracket, whose presence wellFormed has proved.
func (w *walk) skip() { _, _ = w.dec.Token() }

func (w *walk) refuse(reason error, path string) error {
	return &Error{Reason: reason, Field: path, Offset: w.dec.InputOffset()}
}

var (
	rawMessage      = reflect.TypeFor[json.RawMessage]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// readsItself reports whether the type has a decoder of its own (times, uuids);
// what is inside such a value is then its own business.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
}

func nullable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	default:
		return false
	}
}

// fieldsOf returns the JSON names of a struct's fields and their types, by the
// rules of encoding/json: a field hides one of the same name that is embedded.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	var embedded []reflect.Type
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if e := structOf(field.Type); field.Anonymous && name == "" && e != nil {
			embedded = append(embedded, e)
			continue
		}
		if !field.IsExported() {
			continue
		}
		if name == "" {
			name = field.Name
		}
		fields[name] = field.Type
		if strings.Contains(options, "string") { // a number in quotes: only encoding/json reads those
			fields[name] = nil
		}
	}
	for _, e := range embedded {
		for name, fieldType := range fieldsOf(e) {
			if _, hidden := fields[name]; !hidden {
				fields[name] = fieldType
			}
		}
	}
	return fields
}

func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

// maxName bounds what a path repeats of a name that the sender made up.
const maxName = 64

func join(path, name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
