package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strings"

	"orderpaid/platform/strictjson"
)

// MaxBodyBytes bounds the body of a request. The largest honest one, an order
// with many items, is a hundredth of it.
const MaxBodyBytes = 1 << 20

// ReadJSON reads the body of r, one JSON document, into v, a pointer to a
// struct. Names must match exactly, and unknown or repeated fields are refused:
// see [strictjson.Decode].
//
// Every error is an [*Error] that says what is wrong and where, and never
// repeats a value. v is left alone then.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) error {
	if err := checkContentType(r.Header); err != nil {
		return err
	}
	raw, err := ReadBody(w, r)
	if err != nil {
		return err
	}
	return DecodeJSON(raw, v)
}

// DecodeJSON is the second half of [ReadJSON], for bytes that have been read
// already: because their signature had to be verified first, or because they
// are a part of a larger document.
func DecodeJSON(raw []byte, v any) error {
	if err := strictjson.Decode(raw, v); err != nil {
		return explain(err)
	}
	return nil
}

// ReadBody reads the body of r as it is, for callers that must verify a
// signature over its bytes. Errors are those of [ReadJSON].
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &Error{http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body may have %d bytes", MaxBodyBytes)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &Error{http.StatusRequestTimeout, "body_too_slow", "the body did not arrive in time"}
	case err != nil:
		return nil, &Error{http.StatusBadRequest, "body_incomplete", "the body ended early or is not framed as its headers say"}
	}
	return raw, nil
}

// checkContentType refuses what says that it is something else. Nothing said
// is taken as JSON: it is what every route reads.
func checkContentType(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &Error{http.StatusUnsupportedMediaType, "unsupported_encoding", "send the body without a content encoding"}
	}
	given := h.Get("Content-Type")
	if given == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(given)
	if err != nil || media != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return &Error{http.StatusUnsupportedMediaType, "unsupported_media_type", "send application/json in UTF-8"}
	}
	return nil
}

// explain turns a refusal by strictjson into a code and a detail.
func explain(err error) *Error {
	return &Error{http.StatusBadRequest, codeOf(err), err.Error()}
}

func codeOf(err error) string {
	for _, known := range []struct {
		reason error
		code   string
	}{
		{strictjson.ErrEmpty, "empty_body"},
		{strictjson.ErrInvalidUTF8, "bad_text"},
		{strictjson.ErrLoneSurrogate, "bad_text"},
		{strictjson.ErrNUL, "bad_text"},
		{strictjson.ErrUnknownField, "unknown_field"},
		{strictjson.ErrDuplicateField, "duplicate_field"},
		{strictjson.ErrType, "bad_type"},
	} {
		if errors.Is(err, known.reason) {
			return known.code
		}
	}
	return "malformed_json"
}

// WriteJSON writes v with the status. It encodes before it answers, so that a
// value that cannot be encoded becomes a 500 and not half a document.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	writeDocument(w, status, "application/json", v)
}

func writeDocument(w http.ResponseWriter, status int, mediaType string, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // nosniff and the media type protect; & in a title stays readable
	if err := enc.Encode(v); err != nil {
		slog.Error("answer cannot be encoded", "type", fmt.Sprintf("%T", v), "error", err)
		status, mediaType = http.StatusInternalServerError, problemType
		body.Reset()
		body.WriteString(`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal"}`)
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client has gone: nobody is left to tell
}
