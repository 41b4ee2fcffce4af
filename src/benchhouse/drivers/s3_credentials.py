"""Find the credentials for the bucket of a trial."""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from benchhouse.http.s3_sign import VARIABLES, Credentials
from benchhouse.load.protocols.s3 import S3Target
from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import user_and_password


def find_credentials(target: S3Target, endpoint: str, environ: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials of a server started for the trial, those of the target, or the environment's."""
    _, user, password = user_and_password(endpoint)
    if user:
        return Credentials(user, password)
    if target.credentials_file:
        return _from_file(Path(target.credentials_file), target.profile)
    referred = (target.access_key, target.secret_access_key, target.session_token)
    values = [value or environ.get(name, "") for value, name in zip(referred, VARIABLES, strict=True)]
    for value, variable, field in zip(values, VARIABLES, ("access_key", "secret_access_key"), strict=False):
        if not value or value.startswith("$"):  # a reference to a variable that is not set is unchanged
            raise BenchError(
                f"no credentials: {value[1:].strip('{}') if value else variable} is not set",
                f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give target.credentials_file, "
                f"or name another variable in target.{field}",
            )
    access_key, secret, token = values
    return Credentials(access_key, secret, token)


def _from_file(path: Path, profile: str) -> Credentials:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        section = parser[profile]
        return Credentials(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", "")
        )
    except OSError as error:
        raise BenchError(f"target.credentials_file can't be read: {error}") from error
    except KeyError as error:
        raise BenchError(f"{path} has no {error.args[0]!r}", f"it needs [{profile}] with both keys") from error
    except (configparser.Error, UnicodeDecodeError) as error:  # their messages contain lines of the file
        raise BenchError(f"{path} is not a credentials file ({type(error).__name__})") from None
