"""The quickstart runs exactly as it is shown."""

from doc_pages import DOCS, blocks


def test_quickstart_runs_as_shown(tmp_path, bash):
    ran = 0
    for block in blocks(DOCS / "quickstart.md"):
        if block.language == "yaml" and block.file:
            (tmp_path / block.file).write_text(block.text)
        for line in block.commands if block.language == "console" else []:
            done = bash(line, tmp_path)
            assert done.returncode == 0, f"$ {line}\n{done.stdout}\n{done.stderr}"
            ran += 1
    assert ran >= 10
    assert (tmp_path / "reports" / "indexes" / "index.html").is_file()
    sql = "SELECT target_name, metric, avg(value) FROM measurement_fact JOIN trial_fact USING (trial_id) GROUP BY 1, 2"
    done = bash(f'bench query "{sql}" --csv', tmp_path)
    means = {tuple(line.split(",")[:2]): float(line.split(",")[2]) for line in done.stdout.splitlines()[1:]}
    assert means["hnsw", "qps"] > means["exact", "qps"], "the page says that approximate indexes are faster"
    assert means["hnsw", "recall"] < means["exact", "recall"] == 1, "and sometimes wrong"


def test_output_shown_is_output_printed(tmp_path, bash):
    """The lines shown below the first commands are really among what they print."""
    for block in blocks(DOCS / "quickstart.md")[:3]:
        if block.language != "console":
            continue
        done = bash(block.commands[0], tmp_path)
        shown = [line for line in block.text.splitlines() if not line.startswith("$ ")]
        printed = done.stdout.replace(f"{tmp_path}/", "")
        assert [line for line in shown if line not in printed] == [], printed
