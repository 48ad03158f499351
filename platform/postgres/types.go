package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// RegisterTypes changes how a new session reads times and UUIDs, and how it
// writes UUIDs and arrays: it is [Open]'s AfterConnect, and for pools that are
// opened in another way. An array type holds a reference to its element, so
// both of a pair change.
func RegisterTypes(_ context.Context, conn *pgx.Conn) error {
	// pgx would give times the machine's zone, and then the same row would
	// render differently on two machines.
	register(conn, "timestamptz", pgtype.TimestamptzOID, pgtype.TimestamptzArrayOID, &pgtype.TimestamptzCodec{ScanLocation: time.UTC})
	register(conn, "uuid", pgtype.UUIDOID, pgtype.UUIDArrayOID, uuidCodec{})
	register(conn, "text", pgtype.TextOID, pgtype.TextArrayOID, pgtype.TextCodec{})
	register(conn, "bytea", pgtype.ByteaOID, pgtype.ByteaArrayOID, pgtype.ByteaCodec{})
	return nil
}

func register(conn *pgx.Conn, name string, oid, arrayOID uint32, codec pgtype.Codec) {
	element := &pgtype.Type{Name: name, OID: oid, Codec: codec}
	conn.TypeMap().RegisterType(element)
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "_" + name, OID: arrayOID, Codec: arrayCodec{&pgtype.ArrayCodec{ElementType: element}}})
}

// arrayCodec writes the arrays that statements for a thousand events take, of
// ids, texts and payloads, in one loop. pgx puts each element into an interface
// first, and finds those of other types by reflection: measured, half of what a
// statement with ten arrays costs its caller.
//
// It does so where the elements are what the column holds. Anything else, such
// as ids that are strings, is left to pgx: their bytes are not those of a uuid.
type arrayCodec struct{ *pgtype.ArrayCodec }

func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		element := c.ElementType.OID
		switch value.(type) {
		case []uuid.UUID:
			if element == pgtype.UUIDOID {
				return encodeArray[uuid.UUID]{element, func(id *uuid.UUID) []byte { return id[:] }}
			}
		case []string:
			if element == pgtype.TextOID {
				return encodeTexts{element}
			}
		case [][]byte:
			if element == pgtype.ByteaOID {
				return encodeArray[[]byte]{element, func(b *[]byte) []byte { return *b }}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// uuidCodec moves a [uuid.UUID] as its sixteen bytes. pgx on its own finds only
// that the type is a [database/sql/driver.Valuer], and writes and parses its
// text: measured, that was one seventh of the work of a consumer whose
// statements take arrays of event ids.
type uuidCodec struct{ pgtype.UUIDCodec }

func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type encodeUUID struct{}

func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID)
	return append(buf, id[:]...), nil
}

// encodeArray writes an array of one dimension: the number of dimensions,
// whether there are NULLs, the type, the length, the first index, and then each
// element behind its own length, which is -1 for NULL.
// https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/utils/adt/arrayfuncs.c (array_recv)
type encodeArray[T any] struct {
	oid   uint32
	bytes func(*T) []byte // nil is NULL
}

func (e encodeArray[T]) Encode(value any, buf []byte) ([]byte, error) {
	elements := value.([]T)
	if elements == nil {
		return nil, nil
	}
	size, nulls := 0, uint32(0)
	for i := range elements {
		b := e.bytes(&elements[i])
		size += 4 + len(b)
		if b == nil {
			nulls = 1
		}
	}
	buf = appendArrayHeader(slices.Grow(buf, arrayHeader+size), len(elements), nulls, e.oid)
	for i := range elements {
		b := e.bytes(&elements[i])
		length := int32(len(b))
		if b == nil {
			length = -1
		}
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(length)), b...)
	}
	return buf, nil
}

// encodeTexts is encodeArray for strings, which are not bytes without a copy.
type encodeTexts struct{ oid uint32 }

func (e encodeTexts) Encode(value any, buf []byte) ([]byte, error) {
	texts := value.([]string)
	if texts == nil {
		return nil, nil
	}
	size := 0
	for _, text := range texts {
		size += 4 + len(text)
	}
	buf = appendArrayHeader(slices.Grow(buf, arrayHeader+size), len(texts), 0, e.oid)
	for _, text := range texts {
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(text))), text...)
	}
	return buf, nil
}

const arrayHeader = 5 * 4 // bytes

func appendArrayHeader(buf []byte, length int, nulls, oid uint32) []byte {
	dimensions := uint32(min(length, 1)) // an empty array has none
	for _, n := range []uint32{dimensions, nulls, oid} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	if length == 0 {
		return buf
	}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, uint32(length)), 1)
}

type scanUUID struct{}

// Scan reads NULL as the nil UUID, as uuid.UUID itself does.
func (scanUUID) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID)
	switch len(src) {
	case 0:
		*id = uuid.Nil
	case len(id):
		copy(id[:], src)
	default:
		return fmt.Errorf("a uuid of %d bytes", len(src))
	}
	return nil
}
