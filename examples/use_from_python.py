# The code of docs/how-to/use-from-python.md, in one file so that `make check` checks its types.

import benchhouse as bh

ws = bh.open(".")  # a workspace: any folder
scenario = {  # or the path of a file, or bh.Scenario(...)
    "scenario": "greetings",
    "experiment": "command",
    "targets": [
        {"name": "echo", "argv": ["echo", "hello"]},
        {"name": "printf", "argv": ["printf", "hello"]},
    ],
    "workload": {"executions": 5},
    "repetitions": 3,
}
run = ws.run(scenario, progress=True)

submitted = ws.submit(scenario, new=True)  # returns at once
finished = ws[submitted.run_id].wait()  # blocks until the run has ended, and collects it
print(finished.status().state, finished.exit_code)

points = run.points()  # a typed row for each point, metric and statistic
fastest = min((row for row in points if row.metric == "wall_ms" and row.headline), key=lambda row: row.mean)
print(fastest.point, fastest.mean, fastest.unit, fastest.n)

points.show()  # the table that `bench run` prints
table = points.arrow()  # Arrow; points.df() is pandas, points.df("polars") polars

comparison = finished.compare(run.id)  # the second run against the first: what `bench compare` prints
comparison.show()
for row in comparison.table.rows:
    print(row.name, row.change_text, row.verdict)

sides = ws.compare("@last:name=echo", "@last:name=printf", metrics=["wall_ms"])
print(sides.markdown())  # for a pull request

diagnosis = finished.why(run.id)  # worse points, causes, evidence
print(diagnosis.headline)

rows = ws.query("select target_name, count(*) as trials from trial_fact group by all order by all")
print(rows.columns, rows.rows)  # rows.df() and rows.arrow() as for points

traced = ws.trace("@last:name=echo:wall_ms")  # report row, query, digests, bytes on disk
assert traced.ok

report = run.report()
print(report.html)  # report.open() opens it in a browser

typed = bh.Scenario(
    scenario="typed",
    experiment="command",
    target={"name": "true", "argv": ["true"]},
    workload={"executions": [2, 4]},  # a list is an axis
    repetitions=2,
    limits=bh.Limits(wall=120),  # seconds; {"wall": "2m"} is the same
)
(plan,) = ws.plan(typed)
assert plan.points == 2 and plan.trials == 4

try:
    ws.run({"scenario": "typo", "experiment": "comand", "target": {"argv": ["true"]}})
except bh.ProblemsError as error:
    for problem in error.problems:
        print(problem.line, problem.message, problem.expected)
