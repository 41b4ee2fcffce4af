"""Commands inside containers: the options of Apptainer, and the script that checks the image before it enters.

Both are text; a runtime, a worker that starts a server, or a job on a node runs them.
"""

import csv
import io
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchhouse.schema.errors import BenchError
from benchhouse.schema.image import Image

ENTERED = "BENCHHOUSE_ENTERED"
"""Variable inside the container with the start time of the script, from which the worker computes the time to enter."""
IMAGE_CHANGED, IMAGE_GONE, NO_APPTAINER, NO_MODULE, BIND_GONE = 91, 92, 93, 94, 95
_EXITS = {
    IMAGE_CHANGED: "the image is not the one that was pinned",
    IMAGE_GONE: "the image is not there",
    NO_APPTAINER: "there is no apptainer on this node",
    NO_MODULE: "a module of the site could not be loaded",
    BIND_GONE: "a folder to bind does not exist",
    255: "the container runtime itself failed, not what runs inside",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEVER = ("HOME", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")  # these are the image's own
_PASSED = ("SLURM_", "BENCH")  # prefixes of variables that are always passed in
_ALSO = ("CUDA_VISIBLE_DEVICES", "TMPDIR", "TZ")


def explain_exit(code: int | None) -> str:
    """Return the meaning of an exit code of the script; empty if it is the code of the command inside."""
    return _EXITS.get(code or 0, "")


@dataclass(frozen=True)
class Bind:
    source: str
    destination: str
    read_only: bool = False

    def option(self) -> list[str]:
        """Return the bind as `--mount`; in `--bind`, a colon or comma in a path would have a meaning."""
        fields = ["type=bind", f"source={self.source}", f"destination={self.destination}"]
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(fields + (["ro"] if self.read_only else []))
        return ["--mount", line.getvalue()]


def parse_bind(text: str) -> Bind:
    """Parse `source:destination`, optionally followed by `:ro` or `:rw`. Raise BenchError for other text."""
    source, _, rest = text.partition(":")
    destination, _, mode = rest.partition(":")
    if not (source.startswith("/") and destination.startswith("/")) or mode not in ("", "ro", "rw"):
        raise BenchError(f"the bind {text!r} is not /source:/destination, optionally followed by :ro or :rw")
    return Bind(source, destination, mode == "ro")


@dataclass(frozen=True)
class ContainerEntry:
    """One container: its image, binds, and the variables that are passed in."""

    path: str
    image: Image
    binds: Sequence[Bind] = ()
    workdir: str = "/"
    gpus: bool = False
    modules: Sequence[str] = ()
    variables: Sequence[str] = field(default_factory=tuple)

    def options(self) -> list[str]:
        """Return the options: the image is read-only, the home folder is not mounted, and only named variables are
        passed in.

        Files in the home folder (a Python package, a key) are not in any digest, but would affect the measurement.
        """
        options = ["--cleanenv", "--no-eval", "--no-mount", "home,cwd", "--pwd", self.workdir]
        options += ["--nv"] if self.gpus else []
        for bind in sorted(self.binds, key=lambda item: len(item.destination)):  # a folder before its subfolders
            options += bind.option()
        return options

    def script(self, command: Sequence[str], comment: str = "") -> str:
        """Return a bash script that executes `command` inside the container, followed by the script's own arguments."""
        names = [name for name in dict.fromkeys((*_ALSO, *self.variables)) if name not in _NEVER]
        for name in names:
            if not _VARIABLE.fullmatch(name):
                raise BenchError(f"{name!r} is not the name of an environment variable")
        sources = shlex.join(bind.source for bind in self.binds)
        return _SCRIPT.format(
            comment="".join(f"# {line}\n" for line in comment.splitlines()),
            image=shlex.quote(self.path),
            size=self.image.size,
            mtime=self.image.mtime,
            sha256=self.image.sha256,
            load=_MODULES.format(names=shlex.join(self.modules), code=NO_MODULE) if self.modules else "",
            look=_LOOK.format(sources=sources, code=BIND_GONE) if sources else "",
            prefixes=" ".join(f'"${{!{prefix}@}}"' for prefix in _PASSED),
            names=" ".join(names),
            entered=ENTERED,
            options=" ".join(_option(word) for word in self.options()),
            command=shlex.join(command),
            no_apptainer=NO_APPTAINER,
            gone=IMAGE_GONE,
            changed=IMAGE_CHANGED,
        )


def _option(word: str) -> str:
    """Return the option on a line of its own, which is easier to read in the output of `--dry-run`."""
    return f"\\\n    {word}" if word.startswith("--") and shlex.quote(word) == word else shlex.quote(word)


_MODULES = """
if ! command -v module >/dev/null; then
    for file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/lmod/lmod/init/bash; do
        # shellcheck source=/dev/null
        [ -r "$file" ] && . "$file" && break
    done
fi
if command -v module >/dev/null; then
    for name in {names}; do
        module load "$name" >&2 || {{ say "module load $name failed on $HOSTNAME"; exit {code}; }}
    done
fi
"""

_LOOK = """for source in {sources}; do
    [ -e "$source" ] || {{ say "the folder to bind $source does not exist on $HOSTNAME"; exit {code}; }}
done
"""

_SCRIPT = """#!/bin/bash
# Made by bench: enters a container and becomes what is asked for there.
{comment}entered=${{EPOCHREALTIME:-$(date +%s.%N)}}
image={image}
sha256={sha256}
say() {{ echo "enter: $*" >&2; }}
{load}
apptainer=$(command -v apptainer || command -v singularity) || {{
    say "neither apptainer nor singularity is on PATH on $HOSTNAME"
    exit {no_apptainer}
}}
found=$(stat -L -c '%s %Y' -- "$image" 2>/dev/null) || {{ say "the image $image is not there"; exit {gone}; }}
if [ "$found" != '{size} {mtime}' ]; then
    actual=$(sha256sum -- "$image") || {{ say "the image $image can't be read"; exit {gone}; }}
    actual=${{actual#\\\\}} # sha256sum marks a name with a line end or a backslash in it
    if [ "${{actual%% *}}" != "$sha256" ]; then
        say "the image $image is not the one that was pinned: sha256 ${{actual%% *}}, expected $sha256"
        exit {changed}
    fi
fi
{look}
# Nothing of the environment goes in but these; nor does it change how the container is made.
for name in "${{!APPTAINER@}}" "${{!SINGULARITY@}}"; do
    case $name in *_CACHEDIR | *_TMPDIR | *_CONFIGDIR) ;; *) unset "$name" ;; esac
done
inside=APPTAINERENV_
[ "${{apptainer##*/}}" = singularity ] && inside=SINGULARITYENV_
for name in {prefixes} {names}; do
    [ -n "${{!name+set}}" ] && export "$inside$name=${{!name}}"
done
export "$inside"{entered}="${{entered/,/.}}" # a comma in some languages
scratch=()
if [ -d "${{TMPDIR:-}}" ] && [ "$TMPDIR" != /tmp ]; then
    path=${{TMPDIR//\\"/\\"\\"}}
    scratch=(--mount "type=bind,\\"source=$path\\",\\"destination=$path\\"")
fi
exec "$apptainer" --quiet exec {options} \\
    "${{scratch[@]}}" "$image" {command} "$@"
"""
