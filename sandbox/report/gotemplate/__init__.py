"""The template language of docker's `--format`, which is Go's text/template, for plain values.

`lexer` and `parser` make a tree of `nodes`, `evaluate` walks it over `values`; `functions`,
`printing` and `go_json` are what a template can call. Left out: `define`, `template` and `block`,
for a format is one template, and complex numbers.

Errors are worded and placed as docker's, since people look those up; all are `TemplateProblem`.
"""
