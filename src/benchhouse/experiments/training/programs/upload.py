"""Copy a folder to S3 with s3fs. Its one argument is JSON: `folder` and `root`, an s3:// address."""

import json
import sys

import fsspec
import s3fs  # noqa: F401 - its absence is told by its own name

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    fsspec.filesystem("s3").put(options["folder"] + "/", options["root"] + "/", recursive=True)
