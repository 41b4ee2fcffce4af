"""SeaweedFS on several nodes of a batch job: the complete server on the first node, a volume server on each other."""

from shlex import split

from benchhouse.recipes.seaweedfs import RECIPE as ALONE
from benchhouse.schema.recipe import Ready, ServerScale

RECIPE = ALONE.model_copy(
    update={
        "name": "seaweedfs_cluster",
        "description": "SeaweedFS with its S3 gateway on several nodes, each object on `copies + 1` of them",
        "parameters": {"copies": "1"},
        "scale": ServerScale(nodes=2),
        "command": (*ALONE.command, "-master.defaultReplication=00{copies}"),
        "members": (
            *ALONE.command[:4],
            *split(
                "volume -dir={folder} -ip={host} -ip.bind={host} -port={volume} -port.grpc={volume_grpc} "
                "-max=0 -preStopSeconds=0 -master={head}:{head_master}.{head_master_grpc}"
            ),
        ),
        # The answer is 406 while too few volume servers have joined.
        "ready": Ready(kind="http", url="http://{host}:{master}/dir/assign"),
    }
)
