"""The commands of the quickstart work in the order shown; only its runs are made shorter."""

import shlex

from doc_pages import DOCS, blocks

SHORTER = {  # before a file is run, these parts of it are replaced
    "scenarios/first.yaml": [("repetitions: 5", "repetitions: 2")],
    "indexes.yaml": [("repetitions: 3", "repetitions: 1"), ("k: [1, 10]", "k: [10]")],
}


def test_commands_of_the_quickstart_work_and_print_what_is_shown(tmp_path, bench):
    commands = 0
    for block in blocks(DOCS / "quickstart.md"):
        if block.language == "yaml" and block.file:
            (tmp_path / block.file).write_text(block.text)
        printed = ""
        for line in block.commands if block.language == "console" else []:
            program, *arguments = shlex.split(line)
            assert program == "bench"
            if arguments[0] == "run":
                shorten(tmp_path / arguments[1], SHORTER[arguments[1]])
            done = bench(*arguments)
            assert done.code == 0, f"$ {line}\n{done.out}\n{done.err}"
            printed += done.out
            commands += 1
        printed = printed.replace(f"{tmp_path}/", "")
        shown = [line for line in block.text.splitlines() if not line.startswith("$ ")]
        assert block.language != "console" or [line for line in shown if line not in printed] == [], printed
    assert commands >= 10
    assert (tmp_path / "reports" / "indexes" / "index.html").is_file()
    sql = "SELECT target_name, metric, avg(value) FROM measurement_fact JOIN trial_fact USING (trial_id) GROUP BY 1, 2"
    rows = [line.split(",") for line in bench("query", sql, "--csv").out.splitlines()[1:]]
    means = {(target, metric): float(value) for target, metric, value in rows}
    assert means["hnsw", "qps"] > means["exact", "qps"], "the page says that approximate indexes are faster"
    assert means["hnsw", "recall"] < means["exact", "recall"] == 1, "the page says that they are sometimes wrong"


def shorten(path, replacements):
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
