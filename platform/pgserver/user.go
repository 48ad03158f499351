package pgserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// user is who the server runs as.
type user struct {
	name       string
	home       string
	credential *syscall.Credential // nil: as this process
}

// serverUser returns this process's user, or, because PostgreSQL refuses to
// run as root, an ordinary one.
func serverUser() (user, error) {
	if os.Geteuid() != 0 {
		return user{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			return user{name: name, home: u.HomeDir, credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return user{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as")
}

// environ returns the environment for processes of this user.
func (u user) environ() []string {
	env := append(os.Environ(), "LC_ALL=C") // messages in English; the cluster has its own locale
	if u.credential != nil {
		env = append(env, "HOME="+u.home, "USER="+u.name, "LOGNAME="+u.name)
	}
	return env
}

// prepareDir returns the folder to use: dir, or, if the server's user cannot
// enter it (a folder below one that only root may enter), one under /var/tmp
// whose name is derived from dir, so that a later start finds it again.
func prepareDir(ctx context.Context, dir, binDir string, u user) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := makeDataDir(dir, u); err != nil {
		return "", err
	}
	err = u.canEnter(ctx, dir, binDir)
	if !errors.Is(err, os.ErrPermission) {
		return dir, err
	}
	_ = os.Remove(dir) // it is empty, unless the parents' modes have changed since
	elsewhere := filepath.Join("/var/tmp", "orderpaid-"+shortHash(dir))
	if err := makeDataDir(elsewhere, u); err != nil {
		return "", err
	}
	return elsewhere, u.canEnter(ctx, elsewhere, binDir)
}

// makeDataDir creates dir for the server's user, unless somebody's files are
// in it: it may be about to change its owner.
func makeDataDir(dir string, u user) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, lockFile)); err != nil {
			return fmt.Errorf("%s is neither empty nor the folder of an earlier start", dir)
		}
	}
	return makeDir(dir, u)
}

// makeDir creates dir, open to the server's user alone. If it exists, it must
// be a folder of that user or of this process: under /var/tmp and /tmp anyone
// could have put something in its place.
func makeDir(dir string, u user) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != os.Geteuid() && owner != u.uid() {
		return fmt.Errorf("%s belongs to somebody else (user id %d)", dir, owner)
	}
	if u.credential != nil {
		if err := os.Chown(dir, u.uid(), int(u.credential.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

func (u user) uid() int {
	if u.credential == nil {
		return os.Geteuid()
	}
	return int(u.credential.Uid)
}

// canEnter tries, as the server's user, to run the server's binary inside dir.
// Trying is the only check that also knows about access lists and mounts.
func (u user) canEnter(ctx context.Context, dir, binDir string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "postgres"), "--version")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u.credential}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run PostgreSQL as user %s in %s: %w", cmp.Or(u.name, "of this process"), dir, err)
	}
	return nil
}

// maxSocketPath is the room that the kernel has for the path of a socket: 108
// bytes on Linux, 104 on macOS, the last one a zero.
const maxSocketPath = 103

// socketDir returns the folder for the socket: dir itself, or, if its path is
// too long for a socket, one under /tmp.
func socketDir(dir string, u user) (string, error) {
	if len(filepath.Join(dir, ".s.PGSQL."+port)) <= maxSocketPath {
		return dir, nil
	}
	short := filepath.Join("/tmp", "orderpaid-"+shortHash(dir))
	return short, makeDir(short, u)
}

func shortHash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:12] }
