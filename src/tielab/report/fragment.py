"""A comparison as a notebook shows it: verdicts, table and notes in a few lines of HTML."""

from collections.abc import Iterable
from html import escape

from tielab.report.columns import Column, columns_of, legend
from tielab.report.compare import Comparison
from tielab.report.render import nothing


def fragment(comparison: Comparison) -> str:
    """Verdicts, table and notes as HTML, every foreign word escaped."""
    parts = [f"<p><b>{escape(comparison.headline)}</b></p>"]
    if comparison.table.empty:
        parts.append(f"<p>{escape(nothing(comparison))}</p>")
    else:
        columns = [column for column in columns_of(comparison) if column.kind != "check"]
        parts += [_list(comparison.verdicts), _table(columns), _small(legend(comparison, "bold"))]
    if comparison.notes:
        parts.append(f"<details open><summary>Notes</summary>{_list(comparison.notes)}</details>")
    return "\n".join(parts)


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _small(lines: Iterable[str]) -> str:
    return "<p><small>" + "<br>".join(escape(line) for line in lines) + "</small></p>"


def _table(columns: list[Column]) -> str:
    head = "".join(f'<th scope="col">{escape(column.heading)}</th>' for column in columns)
    rows = [
        "<tr>" + "".join(_cell(column, index) for column in columns) + "</tr>"
        for index in range(len(columns[0].cells))
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(column: Column, index: int) -> str:
    text = escape(column.cells[index])
    text = f"<b>{text}</b>" if column.is_marked(index) else text
    return f'<td style="text-align:{"right" if column.is_number else "left"};white-space:nowrap">{text}</td>'
