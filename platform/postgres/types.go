package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// RegisterTypes changes how a new session reads and writes two types: it is
// [Open]'s AfterConnect, and for pools that are opened in another way. An array
// type holds a reference to its element, so both of a pair change.
func RegisterTypes(_ context.Context, conn *pgx.Conn) error {
	// pgx would give times the machine's zone, and then the same row would
	// render differently on two machines.
	register(conn, "timestamptz", pgtype.TimestamptzOID, pgtype.TimestamptzArrayOID, &pgtype.TimestamptzCodec{ScanLocation: time.UTC})
	register(conn, "uuid", pgtype.UUIDOID, pgtype.UUIDArrayOID, uuidCodec{})
	return nil
}

func register(conn *pgx.Conn, name string, oid, arrayOID uint32, codec pgtype.Codec) {
	element := &pgtype.Type{Name: name, OID: oid, Codec: codec}
	conn.TypeMap().RegisterType(element)
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "_" + name, OID: arrayOID, Codec: &pgtype.ArrayCodec{ElementType: element}})
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
