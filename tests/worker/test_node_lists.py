"""Names of nodes as Slurm shortens them."""

from tables import check_rows

from benchhouse.worker.nodes import expand


def test_a_list_of_nodes_is_written_out():
    rows = [
        ("", []),
        ("login", ["login"]),
        ("a,b", ["a", "b"]),
        ("a[1-3,7],b2", ["a1", "a2", "a3", "a7", "b2"]),
        ("mel[0098-0101]", ["mel0098", "mel0099", "mel0100", "mel0101"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("r[1-2]n[01,03]", ["r1n01", "r1n03", "r2n01", "r2n03"]),
        ("gpu[01-02],node[01-02]", ["gpu01", "gpu02", "node01", "node02"]),
        ("a-b[1]-x.example.org", ["a-b1-x.example.org"]),
    ]

    def check(text, names):
        assert expand(text) == names

    check_rows(check, rows)
