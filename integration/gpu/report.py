"""The report as a page: what both did, where they differ, and the figures."""

import difflib


def number(value):
    return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"


def row(name, values):
    return f"| {name} | {values['n']} | {number(values['min'])} | {number(values['median'])} | {number(values['max'])} |"


def transcript_difference(ours, theirs):
    """The commands whose answers differ, as a list."""
    lines = list(difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "theirs", "ours", lineterm="", n=2))
    return "```\n" + "\n".join(lines) + "\n```" if lines else "The same, byte by byte, but for pids and UUIDs."


def listed(result, depth=0):
    """Nested results as nested lists; spreads as minimum / median / maximum."""
    lines = []
    for key, value in result.items():
        indent = "  " * depth
        if isinstance(value, dict) and {"n", "min", "median", "max"} <= value.keys():
            more = "".join(f", {name} {number(part)}" for name, part in value.items() if name not in ("n", "min", "median", "max"))
            text = f"{number(value['min'])} / {number(value['median'])} / {number(value['max'])}{more} (n = {value['n']})"
            lines.append(f"{indent}- {key}: {text}")
        elif isinstance(value, dict):
            lines += [f"{indent}- {key}:", *listed(value, depth + 1)]
        else:
            lines.append(f"{indent}- {key}: {value}")
    return lines


def is_table(result):
    """Whether a result is words by row and column."""
    rows = result.values() if isinstance(result, dict) else ()
    return bool(rows) and all(isinstance(row, dict) and all(isinstance(cell, str) for cell in row.values()) for row in rows)


def table(result):
    """Words by row and column."""
    columns = list(dict.fromkeys(column for row in result.values() for column in row))
    page = [f"| | {' | '.join(map(str, columns))} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in result.items():
        cells = [row.get(column, "").replace("|", "\\|").replace("\n", " ") for column in columns]
        page.append(f"| {name} | {' | '.join(cells)} |")
    return page


def comparison(result):
    """Ours and theirs as a table, with the interval that has the median of the pairs' ratios in it."""
    page = ["| | n | min | median | max |", "|---|---|---|---|---|"]
    page += [row(part, result[part]) for part in ("ours", "theirs", "ratio")] + [""]
    interval = result.get("median ratio, 95 %")
    if interval:
        page += [f"The median ratio is between {interval[0]:.3f} and {interval[1]:.3f} with 95 % confidence.", ""]
    return page


def markdown(results):
    machine = results["machine"]
    page = [
        f"# GPU suite, {machine['date']}",
        "",
        f"GPU and driver: {'; '.join(machine['gpus'])}. Kernel {machine['kernel']}, {machine['cores']} cores.",
        "Made by `integration/gpu/run`. `theirs` is the vendor's daemon on the same machine in the same run.",
        "",
        "## Checks",
        "",
    ]
    for name, done in results["checks"].items():
        ours, theirs = done["ours"], done["theirs"]
        page += [f"### {name}", "", done["about"], ""]
        if name == "live" and ours["ok"] and theirs["ok"]:
            page += [f"{ours['result'].count('> ')} commands.", "", transcript_difference(ours["result"], theirs["result"])]
        else:
            for subject in (ours, theirs):
                mark = "" if subject["ok"] else "**failed** "
                page.append(f"- {'ours' if subject is ours else 'theirs'}: {mark}{subject['result']}")
        page.append("")
    page += ["## Figures", ""]
    for name, done in results["figures"].items():
        page += [f"### {name}", "", done["about"], ""]
        result = done["result"]
        if is_table(result):
            failures = result.get("failures", {})
            page += [] if done["ok"] else ["**failed**", ""]
            page += [*table({name: row for name, row in result.items() if name != "failures"}), ""]
            for failure in failures.values():
                page += ["```", failure, "```", ""]
        elif not done["ok"]:
            page += [f"**failed**: {result}", ""]
        elif isinstance(result, str):
            # The machine lacks something for it, and it says what.
            page += [result, ""]
        elif isinstance(result, dict) and "ratio" in result:
            page += comparison(result)
            for part, own in result.get("parts", {}).items():
                page += [f"`{part}` of it:", "", *comparison(own)]
        else:
            page += listed(result) + [""]
    return "\n".join(page)
