#!/bin/bash
# What the official image's entrypoint does, as far as this project uses it:
# POSTGRES_USER, _PASSWORD, _DB, _INITDB_ARGS and their _FILE forms, PGDATA, and
# /docker-entrypoint-initdb.d/*.{sh,sql}. As root it becomes the user postgres.
set -Eeuo pipefail

from_file() {
	local file="$1_FILE"
	[[ -z ${!file:-} ]] && return
	export "$1"="$(<"${!file}")"
	unset "$file"
}

run_init_files() {
	psql() { command psql -v ON_ERROR_STOP=1 --no-password --no-psqlrc --username "$POSTGRES_USER" "$@"; }
	local file
	for file in /docker-entrypoint-initdb.d/*; do
		case "$file" in
		*.sh) echo "running $file"; if [[ -x $file ]]; then "$file"; else . "$file"; fi ;;
		*.sql) echo "running $file"; psql -d "$POSTGRES_DB" -f "$file" ;;
		esac
	done
}

initialise() {
	if [[ -z ${POSTGRES_PASSWORD:-} ]]; then
		echo 'Error: Database is uninitialized and superuser password is not specified.' >&2
		exit 1
	fi
	eval 'initdb --username="$POSTGRES_USER" --pwfile=<(printf "%s\n" "$POSTGRES_PASSWORD") '"${POSTGRES_INITDB_ARGS:-}"
	printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
	# Like the official image: the first server listens on its socket only, so
	# that nobody takes the half-made cluster for a ready one.
	pg_ctl -D "$PGDATA" -w -o "-c listen_addresses='' -p 5432" start
	export PGPASSWORD="$POSTGRES_PASSWORD"
	if [[ $POSTGRES_DB != postgres ]]; then
		psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" -d postgres --set db="$POSTGRES_DB" <<<'CREATE DATABASE :"db";'
	fi
	run_init_files
	pg_ctl -D "$PGDATA" -m fast -w stop
	unset PGPASSWORD
	echo 'PostgreSQL init process complete; ready for start up.'
}

[[ ${1:0:1} == - ]] && set -- postgres "$@"
[[ $1 == postgres ]] || exec "$@"
if [[ $(id -u) == 0 ]]; then
	mkdir -p "$PGDATA" /run/postgresql
	chown -R postgres "$PGDATA"
	chown postgres /run/postgresql
	chmod 700 "$PGDATA"
	exec setpriv --reuid=postgres --regid=postgres --init-groups -- "${BASH_SOURCE[0]}" "$@"
fi
for name in POSTGRES_USER POSTGRES_PASSWORD POSTGRES_DB POSTGRES_INITDB_ARGS; do from_file $name; done
export POSTGRES_USER="${POSTGRES_USER:-postgres}"
export POSTGRES_DB="${POSTGRES_DB:-$POSTGRES_USER}"
[[ -s $PGDATA/PG_VERSION ]] || initialise
exec "$@"
