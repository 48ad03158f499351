package postgres

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// MigrateFiles runs the migrations of a test.
func MigrateFiles(ctx context.Context, dsn, owner string, files fs.FS) error {
	cc, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*cc)
	defer func() { _ = db.Close() }()
	return migrateOwner(ctx, db, owner, files)
}
