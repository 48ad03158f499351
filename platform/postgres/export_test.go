package postgres

import (
	"context"
	"io/fs"
)

// MigrateFiles runs the migrations of a test.
func MigrateFiles(ctx context.Context, dsn, owner string, files fs.FS) error {
	db, err := openToMigrate(dsn, owner)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return migrateOwner(ctx, db, owner, files)
}
