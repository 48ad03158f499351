// Package pgserver runs a private PostgreSQL from binaries that are already on
// the machine: for the demo, which keeps its data, and for tests, which do not.
// It is not how to run PostgreSQL in production.
//
// What it promises:
//
//   - The server listens on a unix socket in its own folder, mode 0700, and on
//     nothing else: no port can be taken, and who may connect is decided by
//     the file system, so no password is needed.
//   - It never outlives its parent. On Linux the kernel sends it SIGQUIT when
//     the parent dies, however it dies; elsewhere the next [Start] on the same
//     folder stops what was left behind.
//   - A start on a folder that was used before continues with its data, also
//     after a crash of server, parent or machine.
//   - PostgreSQL refuses to run as root. Under root it runs as "postgres" or,
//     where there is no such user, as "nobody".
//
// Read in this order: find.go, server.go, initdb.go, user.go, process.go,
// standby.go.
package pgserver
