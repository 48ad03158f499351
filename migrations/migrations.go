// Package migrations holds the schema of every database, one folder per owner.
// The folder messaging is applied to every database first; then the owner's own.
//
// Migrations are expand, migrate, contract: the code before and the code after
// a migration must both run on either side of it.
package migrations

import (
	"embed"
	"io/fs"
)

//go:embed */*.sql
var files embed.FS

// Messaging is the owner whose migrations every database starts with.
const Messaging = "messaging"

// Of returns the migrations of one owner, for example "order".
func Of(owner string) (fs.FS, error) { return fs.Sub(files, owner) }
