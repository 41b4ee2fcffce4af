"""`bench validate`: every mistake of a file at once, each with its place, never a traceback."""

import json

OK = """\
scenario: ok
experiment: command
target: {name: t, argv: ["true"]}
"""
HEAD = OK.replace("scenario: ok", "scenario: bad")  # three lines, so that what follows begins on line 4
TAIL = OK.partition("\n")[2]

# name: (text after HEAD, or the whole file where it begins with a newline; then line, column and words of each problem)
MISTAKES = {
    # wrong types, at every level
    "text for a number": (
        "repetitions: three\n",
        (4, 14, "expected a whole number or a mapping, found the text 'three'"),
    ),
    "quoted number": ('repetitions: "3"\n', (4, 14, "expected a whole number or a mapping, found the text '3'")),
    "true for a number": ("repetitions: true\n", (4, 14, "expected a whole number or a mapping, found true")),
    "fraction for a whole number": ("warmup: 1.5\n", (4, 9, "expected a whole number, found the number 1.5")),
    "zero repetitions": ("repetitions: 0\n", (4, 14, "expected at least 1, found the number 0")),
    "negative seed": ("seed: -1\n", (4, 7, "expected at least 0")),
    "unknown order": ("order: randon\n", (4, 8, "found the text 'randon'")),
    "list for a mapping": ("workload: [1]\n", (4, 11, "expected a mapping, found a list")),
    "mapping for a list": ("axes: {grid: {warmup: [1]}}\n", (4, 7, "write axes: [{grid: {warmup: [1]}}]")),
    "axes without a block": ("axes: {warmup: [1, 2]}\n", (4, 7, "write axes: [{grid: {warmup: [1, 2]}}]")),
    "null for a mapping": ("limits:\n", (4, 8, "expected a mapping, found nothing (null)")),
    "number for text": ("description: 5\n", (4, 14, "expected text, found the number 5")),
    "list for a target": (
        "\nscenario: bad\nexperiment: command\ntarget: [a, b]\n",
        (4, 9, "expected a mapping or text, found a list"),
    ),
    "no targets": ("\nscenario: bad\nexperiment: command\ntargets: []\n", (4, 10, "expected at least 1 item, found 0")),
    "number in environment": ("environment: {A: 1}\n", (4, 18, "expected text, found the number 1")),
    "bind without destination": ("binds: [/data]\n", (4, 9, "'/data' is not source:destination")),
    "version as a list in which one is twice": ("version: [1.0, 1.0]\n", (4, 10, "version 1.0 is given twice")),
    "version as something else": ("version: true\n", (4, 10, "found true")),
    "unknown number as a version": ("version: 1.10\n", (2, 13, "not installed in version '1.10'")),
    "unknown version among several": ("version: [1.0, 9]\n", (2, 13, "not installed in version '9'")),
    "wrong schema version": ("schema_version: 2\n", (4, 17, "expected 1, found the number 2")),
    # unknown, missing, twice
    "unknown key at the top": ("repetition: 3\n", (4, 1, "unknown key 'repetition'", "repetitions")),
    "unknown key in resources": ("resources: {cpu: 2}\n", (4, 13, "unknown key 'cpu'", "cpus")),
    "unknown key in limits": ("limits: {wal: 1m}\n", (4, 10, "unknown key 'wal'", "wall")),
    "unknown key in budget": ("budget:\n  trial: 3\n", (5, 3, "unknown key 'trial'", "trials")),
    "unknown key in retries": ("retries: {max_retry: 3}\n", (4, 11, "unknown key 'max_retry'", "max_retries")),
    "unknown key in runtime": ("runtime: {kid: venv}\n", (4, 11, "unknown key 'kid'", "kind")),
    "unknown key in an axis block": ("axes:\n  - gird: {warmup: [1]}\n", (5, 5, "unknown key 'gird'", "grid")),
    "unknown workload key": ("workload:\n  execution: 5\n", (5, 3, "unknown key 'execution'", "executions")),
    "unknown target key": (
        '\nscenario: bad\nexperiment: command\ntarget: {name: t, arg: ["true"]}\n',
        (4, 19, "unknown key 'arg'", "argv"),
    ),
    "no scenario": ("\n" + TAIL, (2, 1, "missing key 'scenario'")),
    "nothing to run": ("\nscenario: bad\n", (2, 1, "does not say what to run")),
    "duplicate key": ("seed: 1\nseed: 2\n", (5, 1, "duplicate key 'seed', first on line 4")),
    # files that are no scenario
    "empty": ("\n", (1, 1, "the file is empty")),
    "only comments": ("\n# nothing\n", (1, 1, "only comments")),
    "a list": ("\n- scenario\n", (2, 1, "the top level of the file is a list")),
    "broken YAML": ("workload: [1, 2\n", (4, 11, "not closed")),
    "tabs": ("workload:\n\twarmup: 1\n", (5, 1, "a tab is used")),
    "not a number": ("workload: {timeout: .nan}\n", (4, 21, ".nan is not a finite number")),
    "alias bomb": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(6)),
        (8, 36, "aliases expand to more than"),
    ),
    # names
    "name with dots": ("\nscenario: ../up\n" + TAIL, (2, 11, "'../up' can't be a name")),
    "name with a slash": ("\nscenario: a/b\n" + TAIL, (2, 11, "'a/b' can't be a name")),
    "name with a space": ("\nscenario: a b\n" + TAIL, (2, 11, "'a b' can't be a name")),
    "name with a newline": ('\nscenario: "a\\nb"\n' + TAIL, (2, 11, "'a\\nb' can't be a name")),
    "name that ends in a newline": ('\nscenario: "a\\n"\n' + TAIL, (2, 11, "'a\\n' can't be a name")),
    "name in other letters": ("\nscenario: prüfung\n" + TAIL, (2, 11, "'prüfung' can't be a name")),
    "name too long": (f"\nscenario: {'x' * 101}\n" + TAIL, (2, 11, "at most 100")),
    "empty name": ('\nscenario: ""\n' + TAIL, (2, 11, "can't be a name")),
    # quantities
    "bad duration": ("limits: {wall: 10 parsecs}\n", (4, 16, "'10 parsecs' is not a duration")),
    "no time at all": ("limits: {wall: 0}\n", (4, 16, "expected more than 0")),
    "negative duration": ("limits: {wall: -5}\n", (4, 16, "expected at least 0")),
    "bad size": ("limits: {memory: 4 fish}\n", (4, 18, "'4 fish' is not a size")),
    "endless size": (f"limits: {{memory: {'9' * 400}TB}}\n", (4, 18, "is not a size")),
    "size without its unit": ("limits: {memory: 500}\n", (4, 18, "500 bytes of memory: give the unit, 500MiB")),
    "memory twice": ("resources: {memory: 1GB, mem_gb: 1}\n", (4, 12, "either memory or mem_gb")),
    # what to run
    "unknown experiment": ("\nscenario: bad\nexperiment: comand\n", (3, 13, "no experiment named 'comand'", "command")),
    "unknown version": ('version: "9"\n', (2, 13, "not installed in version '9'", "installed: 1.0")),
    "unknown benchmark": ("\nscenario: bad\nuses: nothing\n", (3, 7, "no benchmark named 'nothing'")),
    "uses and experiment": ("uses: something\n", (1, 1, "either uses or experiment")),
    "unknown executor": ("executor: loca\n", (4, 11, "no executor named 'loca'", "local")),
    "unknown runtime": ("runtime: {kind: vnv}\n", (4, 17, "no runtime named 'vnv'", "venv")),
    "target and targets": ("targets: [a, b]\n", (1, 1, "either target or targets")),
    # axes
    "wrong type inside an axis": ("workload:\n  executions: [1, 2, many]\n", (5, 22, "found the text 'many'")),
    "wrong value inside an axis": ("workload:\n  executions:\n    - 1\n    - 0\n", (7, 7, "found the number 0")),
    "wrong value inside a grid": ("axes:\n  - grid: {warmup: [1, no]}\n", (5, 24, "found the text 'no'")),
    "wrong value inside a zip": (
        "axes:\n  - zip: {warmup: [1, -1], target.name: [a, 5]}\n",
        (5, 23, "found the number -1"),
        (5, 45, "expected text, found the number 5"),
        (5, 28, "'target.name' is varied here, and given a value in line 3"),
    ),
    "wrong value inside points": ("axes:\n  - points:\n    - {warmup: 1}\n    - {warmup: x}\n", (7, 16, "'x'")),
    "empty axis": ("workload: {executions: []}\n", (4, 24, "the axis 'executions' is empty")),
    "unknown axis": ("axes: [{grid: {executoins: [1]}}]\n", (4, 16, "unknown key 'executoins'", "executions")),
    "fixed and varied": (
        "workload: {warmup: 1}\naxes: [{grid: {warmup: [1, 2]}}]\n",
        (5, 16, "'warmup' is varied here, and given a value in line 4", "remove 'warmup' from line 4, or this axis"),
    ),
    "varied twice": (
        "workload: {warmup: [1]}\naxes: [{grid: {warmup: [2]}}]\n",
        (5, 16, "'warmup' varies twice"),
    ),
    "two forms in a block": ("axes: [{grid: {warmup: [1]}, zip: {warmup: [1]}}]\n", (4, 8, "exactly one of")),
    "unequal zip": (
        "axes: [{zip: {warmup: [1, 2], executions: [1]}}]\n",
        (4, 8, "warmup has 2, executions has 1"),
    ),
    "points with other keys": ("axes: [{points: [{warmup: 1}, {executions: 1}]}]\n", (4, 8, "the same keys")),
    "range without a way": ("workload: {warmup: {range: {from: 1, to: 3}}}\n", (4, 28, "exactly one of step, factor")),
    "range downward": ("workload: {warmup: {range: {from: 3, to: 1, step: 1}}}\n", (4, 28, "goes upward")),
    "range with a wrong key": (
        "workload: {warmup: {range: {form: 1, to: 3, step: 1}}}\n",
        (4, 29, "unknown key 'form'"),
        (4, 21, "missing key 'from'"),
    ),
    "endless range": (
        "workload: {warmup: {range: {from: 1, to: 1000, factor: 1.0000001}}}\n",
        (4, 28, "at most 1,000,000 values"),
    ),
    "one value twice": ("workload: {executions: [1, 2, 1.0]}\n", (4, 31, "the same as the value at 4:25")),
    "exclude what does not vary": (
        "workload: {warmup: [1, 2]}\nexclude: [{executions: 1}]\n",
        (5, 12, "'executions' does not vary"),
    ),
    "exclude a value that never is": (
        "workload: {warmup: [1, 2]}\nexclude: [{warmup: [2, 3]}]\n",
        (5, 24, "'warmup' never is 3"),
    ),
    "exclude by an empty rule": ("workload: {warmup: [1, 2]}\nexclude: [{}]\n", (5, 11, "an empty rule")),
    "exclude everything": (
        "workload: {warmup: [1, 2]}\nexclude: [{warmup: [1, 2]}]\n",
        (5, 1, "every point is excluded"),
    ),
    # variables
    "unset variable": ("artifacts: {dataset: $NOT_SET_HERE/x}\n", (4, 22, "NOT_SET_HERE is not set")),
}


def test_each_mistake_is_answered_in_its_place(bench, tmp_path):
    assert len(MISTAKES) >= 70
    failures = {}
    for name, (text, *expected) in MISTAKES.items():
        (tmp_path / "bad.yaml").write_text(text if text.startswith("\n") else HEAD + text)
        done = bench("validate", "bad.yaml", "--json")
        found = json.loads(done.out)[0]["problems"]
        places = {(item["line"], item["column"]): item for item in reversed(found)}
        listed = sorted((item["line"], item["column"]) for item in found)
        wrong = done.code != 2 or listed != sorted(item[:2] for item in expected)
        for line, column, words, *meant in expected:
            item = places.get((line, column), {"message": "", "suggestion": "", "expected": ""})
            wrong |= words not in item["message"]
            wrong |= not all(word in item["suggestion"] + item["expected"] for word in meant)
        if wrong:
            failures[name] = done.code, found
    assert not failures


def test_all_mistakes_are_shown_at_once_with_line_and_caret(bench, tmp_path):
    text = "scenario: a b\nexperiment: command\nrepetitions: x\nseed: -1\nlimits: {wall: soon}\nworklaod: {}\n"
    (tmp_path / "bad.yaml").write_text(text)
    done = bench("validate", "bad.yaml")
    assert done.code == 2
    for place in ("bad.yaml:1:11", "bad.yaml:3:14", "bad.yaml:4:7", "bad.yaml:5:16", "bad.yaml:6:1"):
        assert f"{place}: " in done.err
    assert "    3 | repetitions: x\n      |              ^" in done.err
    assert "did you mean 'workload'?" in done.err
    assert "5 problems in bad.yaml" in done.err
    assert "Traceback" not in done.err


def test_mistakes_of_the_frame_and_of_the_axes_are_shown_together(bench, tmp_path):
    text = "executor: slrum\nruntime: {kind: box}\n"
    (tmp_path / "bad.yaml").write_text(HEAD.replace("experiment: command", "experiment: nothing") + text)
    found = json.loads(bench("validate", "bad.yaml", "--json").out)[0]["problems"]
    assert [item["line"] for item in found] == [2, 4, 5]


def test_a_good_file_says_how_much_it_runs(bench, tmp_path):
    (tmp_path / "ok.yaml").write_text(OK + "workload: {executions: [1, 2, 3]}\nrepetitions: 4\n")
    done = bench("validate", "ok.yaml")
    assert (done.code, done.out) == (0, "ok.yaml: valid, 3 points, 12 trials\n")


def test_one_bad_file_does_not_hide_the_others(bench, tmp_path):
    (tmp_path / "ok.yaml").write_text(OK)
    (tmp_path / "bad.yaml").write_text("scenario: bad\n")
    done = bench("validate", "bad.yaml", "missing.yaml", "ok.yaml", "--json")
    assert done.code == 2
    assert [item["valid"] for item in json.loads(done.out)] == [False, False, True]
    assert "no such file: missing.yaml" in json.loads(done.out)[1]["error"]


def test_a_combination_that_does_not_fit_is_found_before_it_runs(bench, tmp_path):
    (tmp_path / "bad.yaml").write_text(
        "scenario: bad\nexperiment: command\naxes:\n  - grid: {shell: ['', ls], argv: [['true'], []]}\n"
    )
    (tmp_path / "ok.yaml").write_text(OK)
    done = bench("validate", "bad.yaml", "ok.yaml")
    assert done.code == 2
    assert "bad.yaml:" in done.err and "does not fit command" in done.err
    assert "ok.yaml: valid" in done.out


def test_a_file_that_is_no_text_or_too_large_is_refused(bench, tmp_path):
    for content, words in (
        (b"\x00\x01\x02scenario: x\n", "binary file"),
        (b"\xff\xfe\x00\xd8\n", "bad.yaml"),
        (b"\x7fELF" + bytes(range(256)), "bad.yaml"),
        (b"scenario: x\n" + b"# filling\n" * 1_000_000, "MiB"),
    ):
        (tmp_path / "bad.yaml").write_bytes(content)
        done = bench("validate", "bad.yaml")
        assert done.code == 2 and words in done.err, content[:20]
        assert len(done.err) < 5000


def test_a_folder_and_a_missing_file_are_refused(bench, tmp_path):
    assert "is a directory" in bench("validate", tmp_path).err
    assert bench("validate", tmp_path).code == 2
    assert bench("validate", "nowhere.yaml").code == 2


SECRETS = {
    "plain": "target: {name: t, argv: [ls]}\nworkload:\n  api_key: hunter2hunter2\n",
    "on one line with another mistake": "target: {name: t, password: hunter2hunter2, bogus: 1}\nrepetitions: x\n",
    "in a list": "workload: {api_key: [hunter2hunter2]}\n",
    "in an axis": "axes: [{grid: {password: [hunter2hunter2]}}]\n",
    "in a target": "targets:\n  - {name: a, token: hunter2hunter2}\n",
    "in the environment": "environment: {HF_TOKEN: hunter2hunter2}\n",
    "a number": "environment: {PASSWORD: 4711471147114711}\n",
    "in an address": "workload: {endpoint: 'postgresql://me:hunter2hunter2@localhost/db'}\n",
    "in the words of a connection": "workload: {dsn: host=a password=hunter2hunter2}\n",
    "a key by its shape": "workload: {argv: [curl, -H, 'Bearer sk-hunter2hunter2hunter2hunter2']}\n",
}


def test_a_secret_in_plain_text_is_refused_and_not_printed(bench, tmp_path):
    for name, text in SECRETS.items():
        (tmp_path / "bad.yaml").write_text("scenario: bad\nexperiment: command\n" + text)
        for how in ((), ("--json",)):
            done = bench("validate", "bad.yaml", *how)
            output = done.out + done.err
            assert done.code == 2 and "a secret in plain text" in output, (name, how)
            assert "hunter2" not in output and "4711" not in output, (name, how)


def test_json_says_everything_a_program_needs(bench, tmp_path):
    (tmp_path / "bad.yaml").write_text("scenario: bad\nexperiment: comand\n")
    done = bench("plan", "bad.yaml", "--json")
    said = json.loads(done.out)
    assert done.code == said["exit_code"] == 2
    assert said["problems"] == [
        {
            "message": "no experiment named 'comand' is installed",
            "path": "bad.yaml",
            "line": 2,
            "column": 13,
            "source": "experiment: comand",
            "expected": "did you mean 'command'? see: bench list experiments",
            "suggestion": "",
        }
    ]
