"""Docker's template language: what it prints, where it fails, and that it fails in one way only."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.errors import SpecError
from sandbox.report.gotemplate.floats import shortest
from sandbox.report.gotemplate.go_json import marshal
from sandbox.report.gotemplate.quoting import quote
from sandbox.report.gotemplate.values import Record
from sandbox.report.template import Format, Template

DATA: dict[str, Any] = {
    "Name": "web",
    "Pid": 42,
    "Share": 0.5,
    "On": True,
    "Off": False,
    "None": None,
    "Args": ["-c", "a<b>&c"],
    "Empty": [],
    "Labels": {"b": "2", "a": "1"},
    "Nested": {"Deep": {"Er": 7}, "None": None, "List": [1, "x", None, 2.5, True]},
}


def rendered(text: str, value: Any = DATA) -> str:
    return Template(text).render(value)


def record(**fields: Any) -> Record:
    return Record(
        type_name="thing",
        getters={name: lambda source, name=name: source[name] for name in fields},
        source=fields,
        methods={"Label": lambda source, key: f"{key}!"},
        json_names=tuple(fields),
    )


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{.Nested.Deep.Er}}", "7"),
        ("{{.Missing}}", "<no value>"),
        ("{{.Missing.Deeper}}", "<no value>"),
        ("{{.None}}", "<no value>"),
        ("{{printf `%v` .None}}", "<nil>"),
        ("{{.Labels}}", "map[a:1 b:2]"),
        ("{{.Nested.List}}", "[1 x <nil> 2.5 true]"),
        ("{{index .Labels `a`}}", "1"),
        ("{{index .Labels `zz`}}|", "|"),
        ("{{index .Nested `Deep` `Er`}}", "7"),
        ("{{index .Nested `zz`}}", "<no value>"),
        ("{{len .Labels}} {{len .Args}} {{len .Empty}}", "2 2 0"),
        ("{{range $k, $v := .Labels}}{{$k}}={{$v}} {{end}}", "a=1 b=2 "),
        ("{{range .Empty}}x{{else}}none{{end}}", "none"),
        ("{{range .None}}x{{else}}none{{end}}", "none"),
        ("{{range .Args}}{{$.Name}}{{.}} {{end}}", "web-c weba<b>&c "),
        ("{{with .Nested.Deep}}{{.Er}}{{end}}", "7"),
        ("{{with .Off}}x{{else with .On}}{{.}}{{end}}", "true"),
        ("{{if .Args}}a{{end}}{{if .Empty}}b{{end}}{{if .Share}}c{{end}}", "ac"),
        ("{{if and .On (not .Off) (eq .Pid 42)}}yes{{end}}", "yes"),
        ("{{and .Off (index .Args 9)}}", "false"),  # what follows is not evaluated
        ("{{or .Name (index .Args 9)}}", "web"),
        ("{{eq .Share 0.5}} {{lt .Pid 43}} {{eq .None nil}}", "true true true"),
        ("{{eq .Name nil}}", "false"),
        ("{{slice .Args 1}} {{slice .Name 1 2}}", "[a<b>&c] e"),
        ("{{join .Args `, `}} {{join .Labels `+`}} {{join .Nested.List `,`}}",
         "-c, a<b>&c 1+2 1,x,<nil>,2.5,true"),
        ("{{(index .Nested.List 1)}}{{(.Nested).Deep.Er}}", "x7"),
        ("{{range .Nested.List}}{{if eq (print .) `x`}}{{break}}{{end}}{{.}}{{end}}", "1"),
        ("{{$n := 0}}{{range .Args}}{{$n = len .}}{{end}}{{$n}}", "6"),
    ],
)  # fmt: skip
def test_a_template_reads_plain_values(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (DATA["Args"], '["-c","a<b>&c"]'),
        (DATA["Labels"], '{"a":"1","b":"2"}'),
        (DATA["Nested"], '{"Deep":{"Er":7},"List":[1,"x",null,2.5,true],"None":null}'),
        ("\x00\x1f\u2028\ud800", r'"\u0000\u001f\u2028\ufffd"'),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (1.25e-10, "1.25e-10"),
        (-0.0, "-0"),
        (2**63, "9223372036854775808"),
    ],
)
def test_json_is_gos(value: Any, expected: str) -> None:
    assert rendered("{{json .}}", value) == expected


def test_a_whole_record_escapes_for_html_and_sorts_its_keys() -> None:
    row = record(B="a<b>&c", A="1")

    assert rendered("{{json .}} {{json .B}}", row) == (
        r'{"A":"1","B":"a\u003cb\u003e\u0026c"} "a<b>&c"'
    )


def test_a_field_with_an_argument_is_called() -> None:
    row = record(Name="web")

    assert rendered('{{.Label "k"}} {{"p" | .Label}} {{.Name | .Label}}', row) == "k! p! web!"
    with pytest.raises(SpecError, match="wrong number of args for Label: want 1 got 0"):
        rendered("{{.Label}}", row)
    with pytest.raises(SpecError, match="expected string; found 1"):
        rendered("{{.Label 1}}", row)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{.None.X}}", "nil pointer evaluating interface {}.X"),
        ("{{.Name.X}}", "can't evaluate field X in type string"),
        ("{{.Args.X}}", "can't evaluate field X in type []string"),
        ("{{.Nested.X 1}}", "X is not a method but has arguments"),
        ("{{upper .Missing}}", "invalid value; expected string"),
        ("{{upper .Pid}}", "wrong type for value; expected string; got int"),
        ("{{index .Labels 1}}", "error calling index: value has type int; should be string"),
        ("{{len .None}}", "error calling len: len of nil pointer"),
        ("{{range .Name}}x{{end}}", "range can't iterate over web"),
        ("{{eq .Labels .Labels}}", "non-comparable type map[a:1 b:2]: map[string]string"),
        ("{{pad `x` 1000000 1}}", "error calling pad: more than 1000000 spaces"),
        ("{{range 9223372036854775807}}{{end}}", "does not end within 100000 steps"),
    ],
)
def test_what_cannot_be_is_an_error_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        rendered(text)

    assert str(caught.value).startswith("template parsing error: template: :1:")
    assert problem in str(caught.value)


def test_an_error_names_line_and_column_in_bytes() -> None:
    with pytest.raises(SpecError, match=r'template: :2:5: executing "" at <index \.Name 9>'):
        rendered("x\né {{index .Name 9}}")


def test_an_unclosed_action_tells_where_it_started() -> None:
    with pytest.raises(SpecError, match="template: :3: unclosed action started at :1"):
        Template("{{.Name\n\n")


def test_a_missing_key_can_be_an_error() -> None:
    with pytest.raises(SpecError, match='map has no entry for key "Missing"'):
        Template("{{.Missing}}").render(DATA, missing_is_error=True)


def test_an_unknown_field_of_a_record_lists_the_fields() -> None:
    with pytest.raises(SpecError, match="can't evaluate field Nmae in type thing") as caught:
        rendered("{{.Nmae}}", record(Name="web", ID="1"))

    assert caught.value.hint == "the fields are .ID, .Name"


def test_nesting_is_bounded() -> None:
    with pytest.raises(SpecError, match="more than 40 levels"):
        Template("{{" + "(" * 5000 + ".Name" + ")" * 5000 + "}}")
    with pytest.raises(SpecError, match="more than 40 levels"):
        Template("{{if 1}}" * 5000 + "{{end}}" * 5000)


# --- formats --------------------------------------------------------------------------------------


ROWS = [record(Name="web", ID="1"), record(Name="<b>", ID="0123456789ab")]
HEADINGS = {"Name": "NAME", "ID": "CONTAINER ID"}


def formatted(text: str) -> str:
    return Format(text, default_table=r"{{.ID}}\t{{.Name}}").render(ROWS, HEADINGS)


@pytest.mark.parametrize(
    "text", ["", "table", r"table {{.ID}}\t{{.Name}}", "table{{.ID}}\t{{.Name}}"]
)
def test_a_table_has_headings_and_columns(text: str) -> None:
    assert formatted(text) == "CONTAINER ID   NAME\n1              web\n0123456789ab   <b>\n"


def test_json_is_one_object_a_line() -> None:
    assert formatted("json") == (
        '{"ID":"1","Name":"web"}\n{"ID":"0123456789ab","Name":"\\u003cb\\u003e"}\n'
    )


def test_a_template_is_one_text_a_line_and_knows_tab_and_newline() -> None:
    assert formatted(r" {{.Name}}\t{{.ID}}\n ") == "web\t1\n\n<b>\t0123456789ab\n\n"


def test_bytes_that_are_no_text_in_the_format_are_shown_as_such() -> None:
    assert formatted("\udcff{{.ID}}") == "\ufffd1\n\ufffd0123456789ab\n"


def test_an_empty_table_still_has_headings_and_nothing_else_does() -> None:
    assert Format("table {{.ID}}", default_table="").render([], HEADINGS) == "CONTAINER ID\n"
    assert Format("json", default_table="").render([], HEADINGS) == ""


def test_headings_are_left_as_they_are_by_what_changes_values() -> None:
    text = r"table {{lower .ID}}\t{{truncate .Name 1}}{{.Nothing}}"
    headings = Format(text, default_table="").render([], HEADINGS)

    assert headings == "CONTAINER ID   NAME<no value>\n"


def test_a_plain_table_does_not_load_the_parser() -> None:
    """The parser's modules take longer to load than a table takes to print."""
    code = (
        "import sys; from sandbox.report.stats import StatsView; print(StatsView().render([]));"
        "print('sandbox.report.gotemplate.parser' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout.split()[-1] == "False"


# --- whatever is written --------------------------------------------------------------------------

PIECES = [
    "{{", "}}", "{{-", "-}}", "{{.Name}}", "{{.Pid}}", "{{end}}", "{{else}}", "{{else if .On}}",
    "{{if .On}}", "{{range .Args}}", "{{range $i, $x := .Args}}", "{{with .Nested}}", "{{break}}",
    "{{continue}}", "{{$x}}", "{{$x := 1}}", "{{$x = 2}}", "{{/* c */}}", "{{json .}}", "(", ")",
    "|", ".Name", ".Nested.Deep", "$", "$x", ":=", "=", ",", " ", "\t", "\n", "printf", "upper",
    "index", "slice", "eq", "len", "split", "join", "pad", "truncate", "not", "and", "nil", "true",
    "0", "1", "-1", "2.5", "1e9", "0x1p4", "'a'", '"s"', "`r`", '"%d %v %q"', '"', "'", "`", "\\",
    "é", "日", "\ud800", "@", "#", "x",
]  # fmt: skip
TEMPLATES = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=80), TEMPLATES, TEMPLATES.map("{{{{{}}}}}".format)))
@example("{{" * 3000)
@example("{{range 1000000}}{{range 1000000}}{{end}}{{end}}")
@example("{{printf `%[9999999999999999999]*d` 1}}")
@example("{{printf `%99999999999999999999d` 1}}")
@example("{{{.Name}}}")
@example("{{'" + "\\" * 99)
def test_any_text_is_a_template_or_a_spec_error(text: str) -> None:
    try:
        template = Template(text)
        out = template.render(DATA) + template.render_header({"Name": "NAME"})
    except SpecError as error:
        out = str(error).removeprefix("template parsing error: template: ")
        assert out != str(error)  # noqa: PT017 - whether it raises is what is random
    assert isinstance(out, str)


@settings(deadline=None)
@given(st.text(max_size=60), st.lists(st.sampled_from([1, -3, 2.5, "a<é", True, None]), max_size=3))
def test_printf_takes_any_format_and_any_values(text: str, values: list[Any]) -> None:
    from sandbox.report.gotemplate.printing import sprintf

    assert isinstance(sprintf(text, values), str)


@settings(deadline=None)
@given(st.text())
def test_a_quoted_string_means_the_text_again(text: str) -> None:
    plain = text.encode("utf-8", "replace").decode()

    assert rendered("{{" + quote(plain) + "}}") == plain


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0))
def test_the_shortest_digits_mean_the_same_float(value: float) -> None:
    assert float(shortest(value)) == value
    assert float(marshal(value)) == value


@settings(deadline=None)
@given(st.text(), st.text())
def test_plain_fields_are_filled_as_the_parser_would(name: str, text: str) -> None:
    """Templates of fields alone are filled without a parser; a comment sends them through it."""
    row = record(Name=name, ID="1")
    around = text.replace("{", "").replace("}", "")
    plain = around + "{{.Name}} {{ .ID }}" + around

    assert rendered(plain, row) == rendered("{{/**/}}" + plain, row)
