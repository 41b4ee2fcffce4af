"""Configuration of Fluent Bit to send the output of run pods to a search engine as it is printed."""

from urllib.parse import unquote, urlsplit

from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.pod_template import RUN_LABEL
from benchhouse.schema.secrets import split_userinfo
from benchhouse.schema.workspace_file import SearchIndex

_STATE = "/var/lib/fluent-bit"


def configuration(index: SearchIndex) -> str:
    """Return YAML for Fluent Bit on every node (a DaemonSet, such as that of its Helm chart).

    A password stays the name of its variable, which Fluent Bit reads from its own environment.
    """
    if index.api_key:
        raise BenchError(
            "Fluent Bit is given a login, not an API key", "search: {url: https://user:$SEARCH_PASSWORD@host:9200}"
        )
    bare, userinfo = split_userinfo(index.url)
    address, (user, _, password) = urlsplit(bare), userinfo.partition(":")
    output = {
        "name": "es",
        "match": "kube.*",
        "host": address.hostname,
        "port": address.port or {"http": 80, "https": 443}[address.scheme],
        "path": address.path.rstrip("/"),
        "tls": "on" if address.scheme == "https" else "off",
        "http_user": unquote(user),
        "http_passwd": f"${{{password.strip('${}')}}}" if password else "",
        "index": f"{index.prefix}-pods",
        "suppress_type_name": "on",  # types no longer exist
        "generate_id": "on",  # a line that is sent again is still one document
        "replace_dots": "on",
        "retry_limit": 10,
        "storage.total_limit_size": "1G",
    }
    made = {
        "service": {"flush": 5, "log_level": "info", "storage.path": f"{_STATE}/buffer"},
        "pipeline": {
            "inputs": [
                {
                    "name": "tail",
                    "tag": "kube.*",
                    "path": "/var/log/containers/*.log",
                    "multiline.parser": "docker, cri",
                    "db": f"{_STATE}/tail.db",  # position for restarts
                    "skip_long_lines": "on",
                    "storage.type": "filesystem",  # what a busy server rejects waits on disk
                }
            ],
            "filters": [
                {"name": "kubernetes", "match": "kube.*", "labels": "on", "annotations": "off"},
                {"name": "grep", "match": "kube.*", "regex": f"$kubernetes['labels']['{RUN_LABEL}'] ."},
            ],
            "outputs": [{key: value for key, value in output.items() if value != ""}],
        },
    }
    return dump_yaml(made)
